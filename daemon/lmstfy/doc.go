// Package lmstfy serves lmstfy's HTTP interface on shunt, so that its clients and scripts work as they are.
//
// [API] has the public routes and [Admin] those for operators. Both make plain http.Handlers. Package serve around them
// sets the header X-Request-ID. Namespace and queue become the channel "namespace/queue", which Go programs may use
// beside them. A job's id is its message's ID.
//
// It differs from lmstfy 1.0.15 where that one loses, leaks or has no bounds:
//
//   - Tokens are kept hashed, so a list of them shows marks: four characters, an asterisk, and 16 digits of the hash.
//     Delete and the limits take a mark in the token's place. No answer but that of the token's creation has a token.
//   - A token may have a role, by the parameter role of POST /token; lmstfy's own are "both". Another role than the
//     route wants is 403. A republish ends another job, and takes "both".
//   - Namespace and queue have 199 bytes together, and a consume names 64 queues at most. Beyond that it is 400.
//   - A query that is no query is 400, instead of being read in part.
//   - A consume of several queues takes what it can from the first that has something, then goes on.
//   - A job that was delivered and whose ttl ends goes to the dead letters.
//   - tries beyond 255 is no bound. delay and ttl are cut to 99 and 100 years. A ttl that equals its delay counts a
//     second more.
//   - A peek shows the tries that remain, also by id.
//   - A bulk is published as a whole up to 1 MB. Of a larger one that fails, what was published is cancelled, if Redis
//     is back within 10 s.
//   - A republish of a job that is delivered is one step. Else it publishes first and deletes then. A fault between the
//     two leaves both, never none.
//   - A respawn publishes first and deletes then. A fault between the two leaves a dead letter whose job waits; the
//     next respawn drops it. One whose id another job has by now stays dead.
//   - Too many waiting requests, and too many bytes of bodies and answers at once, are 503 with Retry-After. timeout is
//     cut to [Limits].MaxWait.
//   - A token that is deleted while its request waits gets 401 and no job.
//
// An ack by id means that the job is done, whoever says so: there is no room for a receipt in lmstfy's interface. A
// late ack ends the job also where another consumer has it by then.
package lmstfy
