//===- PageStyle.h - how pages look -----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The style sheet of a report's page. The colours h0 to h7 distinguish hooks,
// on light and dark backgrounds and for red-green color blindness.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_REPORT_PAGESTYLE_H
#define DDPHOOK_LIB_REPORT_PAGESTYLE_H

#include "llvm/ADT/StringRef.h"

namespace mlir::ddp {

/// The number of colours; further hooks start again from the first.
inline constexpr unsigned kNumColours = 8;

inline constexpr llvm::StringLiteral kPageStyle = R"css(
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--fg:#1c1d20;--dim:#6b6f76;--line:#e4e4e1;--track:#efefec;--neutral:#b9bcc2}
.h0{--c:#2f6fde}.h1{--c:#c9761a}.h2{--c:#12897a}.h3{--c:#a6458f}.h4{--c:#7c7a13}.h5{--c:#7455cf}.h6{--c:#b8402f}.h7{--c:#4a7186}
@media(prefers-color-scheme:dark){
:root{--bg:#141518;--card:#1c1e22;--fg:#e8e8e6;--dim:#9a9da5;--line:#2d3036;--track:#26292e;--neutral:#5b6069}
.h0{--c:#6ea2ff}.h1{--c:#f0a44b}.h2{--c:#3fc1ae}.h3{--c:#dc85c7}.h4{--c:#bdb93f}.h5{--c:#a792f5}.h6{--c:#f07f6d}.h7{--c:#84b2c9}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1120px;margin:0 auto;padding:40px 28px 72px}
h1{font-size:27px;line-height:1.25;font-weight:650;letter-spacing:-.015em;margin:0;overflow-wrap:anywhere}
h2{font-size:18px;font-weight:650;margin:0 0 4px}
h3{font-size:13px;font-weight:600;color:var(--dim);margin:20px 0 6px}
p{margin:0}
.dim{color:var(--dim)}
section{margin-top:44px}
section>.dim{max-width:74ch;margin-bottom:14px}
code,.g b,.name,.lane b,.lane i{font-family:ui-monospace,"SF Mono","DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:.88em;unicode-bidi:isolate;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(160px,1fr));gap:1px;margin-top:26px;background:var(--line);border:1px solid var(--line);border-radius:10px;overflow:hidden}
.tiles div{background:var(--card);padding:14px 18px}
.tiles b{display:block;font-size:23px;line-height:1.3;font-weight:600;letter-spacing:-.01em}
.tiles span,.tiles small{display:block;font-size:13px;color:var(--dim)}
.legend{display:flex;flex-wrap:wrap;gap:4px 20px;margin:0 0 12px;padding:0;list-style:none;font-size:13px}
.legend li{display:flex;align-items:center;gap:7px}
.legend i{width:12px;height:12px;border-radius:3px;background:var(--c,var(--neutral))}
.legend .pale,.legend .full{background:var(--dim)}
.legend .pale{opacity:.3}
.card,.list{background:var(--card);border:1px solid var(--line);border-radius:10px}
.card{padding:16px 18px;overflow-x:auto}
.list{overflow:hidden}
.list>div{content-visibility:auto;contain-intrinsic-size:auto 4700px}
.list>div:only-child{content-visibility:visible}
details{border-top:1px solid var(--line)}
.list>div:first-child>details:first-child{border-top:0}
summary{display:grid;grid-template-columns:minmax(70px,1fr) 190px 3fr 190px 62px;gap:18px;align-items:center;padding:11px 18px;cursor:pointer;list-style:none}
summary::-webkit-details-marker{display:none}
summary:hover{background:var(--track)}
summary:focus-visible{outline:2px solid var(--c);outline-offset:-2px}
summary .name{font-weight:600;font-size:14px}
summary .name::before{content:"";display:inline-block;width:0;height:0;margin-right:10px;border:4px solid transparent;border-left:6px solid var(--dim);border-right:0;transition:transform .12s}
details[open]>summary .name::before{transform:rotate(90deg)}
.chip{display:inline-flex;align-items:center;gap:7px;font-size:13px}
.chip::before{content:"";flex:none;width:9px;height:9px;border-radius:50%;background:var(--c)}
.num{text-align:right;white-space:nowrap}
.bar{position:relative;height:14px}
.bar::before,.bar::after{content:"";position:absolute;left:0;top:0;bottom:0;border-radius:3px;background:var(--c);min-width:2px}
.bar::before{width:var(--a);opacity:.3}
.bar::after{width:var(--w)}
.body{padding:2px 18px 20px 34px;border-top:1px solid var(--line)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:14px 0 0}
dt{color:var(--dim)}
dd{margin:0;overflow-wrap:anywhere}
.g{margin:0;padding:0;list-style:none;content-visibility:auto;contain-intrinsic-size:auto 2900px}
.g:last-of-type{contain-intrinsic-size:auto none}
.g li{display:grid;grid-template-columns:minmax(0,5fr) minmax(0,3fr) 90px minmax(0,5fr);gap:18px;padding:3px 0;border-bottom:1px solid var(--line)}
.g i{font-style:normal;overflow-wrap:anywhere}
.g i:nth-child(3){text-align:right}
.g i:nth-child(4){color:var(--dim);font-size:13px}
.g b{font-weight:400}
table{border-collapse:collapse;width:100%}
th{font-size:13px;font-weight:600;color:var(--dim);text-align:left;vertical-align:bottom}
th,td{padding:5px 18px 5px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
tr:last-child>td{border-bottom:0}
.body td:nth-child(2){min-width:270px}
.remarks td:first-child{white-space:nowrap}
.remarks td:last-child{color:var(--dim);font-size:13px;min-width:150px}
.lane{display:grid;grid-template-columns:128px 1fr;gap:12px;align-items:center;margin:3px 0;min-width:560px}
.lane b{font-weight:400;font-size:12px;color:var(--dim);text-align:right}
.lane>div{position:relative;height:22px;background:var(--track);border-radius:3px}
.lane i{position:absolute;top:2px;bottom:2px;min-width:2px;padding:0 5px;border-radius:3px;background:var(--c,var(--neutral));color:var(--card);font-style:normal;font-size:11px;line-height:18px;overflow:hidden;white-space:nowrap;overflow-wrap:normal}
.lane i:empty{padding:0}
.lane i.n{background:var(--neutral)}
.lane i.s{background:none;border:1px solid var(--neutral);color:var(--dim);line-height:16px}
.lane i.w{background:repeating-linear-gradient(135deg,var(--card) 0 3px,transparent 3px 6px);opacity:.75;border-radius:0}
.lane i.r{text-align:right}
.legend i.s{background:none;border:1px solid var(--neutral)}
.legend i.x,.lane i.x{background:repeating-linear-gradient(135deg,var(--neutral) 0 3px,transparent 3px 6px)}
.lane+.rank{margin-top:12px}
.axis>div{background:none;height:16px}
.axis u{position:absolute;transform:translateX(-50%);text-decoration:none;font-size:11px;color:var(--dim);white-space:nowrap}
.axis u:first-child{transform:none}
.missed td:first-child::before{content:"";display:inline-block;width:8px;height:8px;border-radius:50%;background:#d0682a;margin-right:8px}
footer{margin-top:48px;padding-top:14px;border-top:1px solid var(--line);font-size:13px;color:var(--dim)}
@media(max-width:820px){main{padding:24px 16px 48px}summary{grid-template-columns:1fr 1fr}.bar{grid-column:1/-1}.body{padding-left:18px}.g li{grid-template-columns:1fr 1fr}}
@media print{.list>div,.g{content-visibility:visible}.card,details{break-inside:avoid}}
)css";

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_REPORT_PAGESTYLE_H
