// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "store/handshake.h"

#include "base/packed_texts.h"

using namespace ddphook;

/// The last byte is the protocol's version.
static constexpr std::string_view magic = "ddphook\2";
static constexpr char hasSecretFlag = 1;
static constexpr char accepted = 1;
static constexpr char refused = 0;

static_assert(AcceptingHandshake::greetingSize ==
              magic.size() + 1 + AcceptingHandshake::nonceSize);

std::string ddphook::jobKey(std::string_view secret) {
  return deriveKey(secret, "ddphook job");
}

std::string ddphook::deriveKey(std::string_view key, std::string_view use) {
  return hmacSha256(key, packTexts({"derived key", use}));
}

/// Returns the proof of one end. `role` is "claim" or "verdict", so that
/// neither can be sent back as the other.
static std::string prove(const Credentials &credentials, std::string_view role,
                         std::string_view acceptingNonce,
                         std::string_view connectingNonce,
                         std::string_view introduction) {
  return hmacSha256(credentials.key,
                    packTexts({role, credentials.purpose, acceptingNonce,
                               connectingNonce, introduction}));
}

Status AcceptingHandshake::begin(const Credentials &credentials,
                                 AcceptingHandshake *handshake) {
  handshake->credentials = credentials;
  return drawSecret(nonceSize, &handshake->nonce);
}

std::string AcceptingHandshake::greeting() const {
  std::string bytes(magic);
  bytes.push_back(credentials.hasSecret ? hasSecretFlag : 0);
  return bytes + nonce;
}

bool AcceptingHandshake::check(std::string_view claim,
                               std::string *introduction,
                               std::string *verdict) const {
  verdict->assign(verdictSize, '\0');
  (*verdict)[0] = refused;
  if (claim.size() < claimSize(0))
    return false;
  std::string_view theirs = claim.substr(0, nonceSize);
  std::string_view middle =
      claim.substr(nonceSize, claim.size() - claimSize(0));
  std::string_view proof = claim.substr(claim.size() - digestSize);
  if (!areEqualSecrets(prove(credentials, "claim", nonce, theirs, middle),
                       proof))
    return false;
  *introduction = middle;
  *verdict = accepted + prove(credentials, "verdict", nonce, theirs, middle);
  return true;
}

/// Returns an error that says which end lacks the secret, as far as they say.
static Status refusal(bool oursHasSecret, bool theirsHasSecret) {
  if (oursHasSecret == theirsHasSecret)
    return Status(DDPHOOK_BAD_ENVIRONMENT,
                  oursHasSecret
                      ? "it was started with another DDPHOOK_JOB_SECRET"
                      : "it does not belong to this job");
  return badEnvironment(
      oursHasSecret ? "it was started without a DDPHOOK_JOB_SECRET, but this "
                      "rank with one"
                    : "it was started with a DDPHOOK_JOB_SECRET, but this rank "
                      "without one");
}

Status ddphook::proveOn(int socket, const Credentials &credentials,
                        std::string_view introduction, const Deadline &deadline,
                        const Interrupt *interrupt) {
  char greeting[AcceptingHandshake::greetingSize];
  std::string_view received(greeting, sizeof(greeting));
  DDPHOOK_TRY(receiveAll(socket, greeting, magic.size(), deadline, interrupt));
  if (received.substr(0, magic.size()) != magic)
    return error(DDPHOOK_IO_ERROR, "it does not speak ddphook's protocol");
  DDPHOOK_TRY(receiveAll(socket, greeting + magic.size(),
                         sizeof(greeting) - magic.size(), deadline, interrupt));
  bool theirsHasSecret = received[magic.size()] == hasSecretFlag;
  std::string_view theirs = received.substr(magic.size() + 1);
  // This is only a hint, because it is not proved. Strangers learn nothing from
  // it, because no claim is sent.
  if (theirsHasSecret != credentials.hasSecret)
    return refusal(credentials.hasSecret, theirsHasSecret);

  std::string ours;
  DDPHOOK_TRY(drawSecret(AcceptingHandshake::nonceSize, &ours));
  std::string claim = ours;
  claim.append(introduction);
  claim += prove(credentials, "claim", theirs, ours, introduction);
  DDPHOOK_TRY(sendAll(socket, claim.data(), claim.size(), deadline, interrupt));

  char verdict[AcceptingHandshake::verdictSize];
  DDPHOOK_TRY(
      receiveAll(socket, verdict, sizeof(verdict), deadline, interrupt));
  std::string expected =
      accepted + prove(credentials, "verdict", theirs, ours, introduction);
  if (!areEqualSecrets(std::string_view(verdict, sizeof(verdict)), expected))
    return refusal(credentials.hasSecret, theirsHasSecret);
  return Status::ok();
}
