// Package v1 serves shuntd's own HTTP interface, /v1: what shunt can do and lmstfy's interface has no words for. It is
// described by an OpenAPI document, which GET /v1/openapi.json serves.
//
// [API] is the routes for producers and consumers, over any [shunt.Queue]. Namespace and queue become the channel
// "namespace/queue", as with package lmstfy: both interfaces see the same messages.
//
//   - A message is named in a path by "id:NAME", by "serial:SERIAL", or by its Ref, each escaped as one segment.
//   - What is wrong with a request is told all at once, as application/problem+json of RFC 9457 with a stable type.
//     What is not known is wrong, too: a parameter, a header that begins with Shunt-, a field.
//   - A payload is text where it is valid UTF-8, in the field payload, and else base64, in payload_base64. With one
//     message and no JSON in Accept it is the body, as it is, and Shunt- headers have the rest.
//   - Values of Shunt- headers are percent-encoded UTF-8, in both directions.
//   - A verdict needs the receipt that the pull gave. What comes too late changes nothing, and is 410.
//   - A publish with an Idempotency-Key is done once in 24 h, on its queue, whatever becomes of the messages, of the
//     connection and of this process: [shunt.Queue.EnqueueOnce] notes the key in the step that enqueues. It costs some
//     300 bytes in Redis for each key. Only what was published is noted: a refusal is judged anew.
//   - A message that could not be written to its client is released at once, and costs no attempt. Whether a client has
//     read what its machine took, nobody knows.
//   - Server-sent events tell what the Queue of this process does and sees: its own publishes, verdicts and upkeep, not
//     those of other processes.
package v1
