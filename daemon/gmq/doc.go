// Package gmq serves gmq's JSON-RPC 1.0 over TCP on shunt's queues: Service.Push, Service.Pop and Service.Ack. gmq's
// clients work as they are.
//
// THE PROTOCOL HAS NO TOKENS. Whoever reaches the listener may push, pop and ack on all topics of its prefix. So it
// belongs on loopback, or behind a list of networks.
//
// A request is one JSON object, mostly on a line of its own:
//
//	{"method":"Service.Push","params":[{"id":"1","topic":"mails","body":"…","delay":"0","TTR":"60"}],"id":1}
//	{"id":1,"result":"success","error":null}
//	{"method":"Service.Pop","params":[["urgent","mails"]],"id":2}
//	{"id":2,"result":{"TTR":"60","body":"…","consume_num":"0","delay":"0","id":"1","status":"3",
//	"topic":"mails"},"error":null}
//	{"method":"Service.Ack","params":["1"],"id":3}
//	{"id":3,"result":true,"error":null}
//
// Requests of one connection are handled at once, and answers come as they are ready, by their id.
//
// A pop takes from the first topic that has a job, waits 2 s for one, and then is the error "empty". A job with a TTR
// is the client's for TTR + 3 s; then it is popped again, as often as it takes. A job without one is acked once its
// answer is written. What was popped for a client that has left, or could not be written, is released. An end of the
// client's side of a connection counts as leaving for its pops, and not for its pushes and acks.
//
// An ack means that the job is done, whoever says so: a late one also ends a job that another client has by then. Ids
// should be unique among all topics, as in gmq. It is certain within a topic alone: Push refuses an id that lives on
// another topic where this process has met it. Of an id that two topics have, Ack ends the job that this process has
// delivered. Where it has delivered both, Ack is an error. Where it has delivered neither, Ack ends the one that is
// leased; of two, the one that this process has pushed, or it is an error.
package gmq
