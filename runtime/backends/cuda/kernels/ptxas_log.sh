#!/bin/sh
# Runs a compiler, given as the arguments, and stores ptxas's report on each
# kernel in a file next to the object.
object=
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
messages=${object:-/dev/null}
[ -n "$object" ] && messages=$object.messages
"$@" 2>"$messages"
status=$?
if [ -n "$object" ]; then
  # ptxas's lines go to a file, all others to stderr.
  ptxas='^ptxas info|bytes (stack frame|cumulative stack)|^$'
  grep -E "$ptxas" "$messages" >"$object.ptxas"
  grep -Ev "$ptxas" "$messages" >&2
  rm -f "$messages"
fi
exit $status
