// Package push posts the messages of queues to HTTP endpoints: webhooks.
//
// A [Group] is some queues of a pool's namespace, and the endpoint that gets their messages. Groups are kept in Redis
// and changed by the routes of [Pusher.Routes]. Every process that runs a [Pusher] follows a change within a second. It
// hears hints of changes, and looks by itself more often than once a second.
//
// # A request
//
// Each message is one POST. Its body is the payload. It is signed as Standard Webhooks says, once with each secret of
// the group:
//
//	webhook-id         the serial of the message, the same for all its attempts; "bare-" and a hash where it has none
//	webhook-timestamp  seconds since 1970, of this attempt
//	webhook-signature  "v1," and the base64 of HMAC-SHA256 over id "." timestamp "." body; one for each secret, with
//	                   blanks between them
//	shunt-channel      namespace/queue
//	shunt-serial       missing where the message has none
//	shunt-id           missing where the message has none
//	shunt-attempt      from 1
//
// Bytes of a shunt- header that are not visible ASCII, and "%", are percent-encoded. A secret is "whsec_" and the
// base64 of 24 to 64 bytes. To rotate one, give the new one beside the mark of the old one, and drop the old one later.
//
// # The answer
//
//	2xx          the message is done. With Result, the body becomes its result
//	410          the message stays, and the group is stopped until somebody resumes it. No attempt is counted
//	429, 503     tried again when Retry-After says, up to MaxRetryAfter; without the header as below
//	408, 425     tried again after the backoff
//	other 4xx    tried again after the backoff, or to dead at once, as ClientErrors says
//	others       tried again after the backoff, redirects too: none is followed
//	no answer    tried again after the backoff
//
// The attempts of a message are its own where it was published with some, as each job of lmstfy's interface is by its
// tries. Else they are the group's.
//
// A message may be posted twice, with the same webhook-id. With Result, an answer that breaks off is no answer. Without
// it the status line counts. A result that is larger than MaxAnswer is dropped, and the log says so.
//
// # Where requests may go
//
// An endpoint is reached directly, whatever proxy the environment names. It must have a public address. Loopback,
// private, shared, link-local, multicast and reserved addresses are refused, and those of cloud metadata. The address
// is checked when it is dialled, so that no name and no form of an address leads around that. [Group].Allow and
// [Pusher].Allow name networks that may be reached all the same. Certificates are always verified.
//
// # Keys
//
// Secrets lie in Redis as they are, since requests are signed with them. No answer and no line of a log has one.
//
//	{shuntd}.push.POOL   hash: NAMESPACE/GROUP → the Group as JSON
//	{shuntd}.pushed      counts the changes of all groups
//	{shuntd}.push.hints  channel on which changed hashes are named
package push
