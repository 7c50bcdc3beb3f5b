// Package delayq serves delayq's HTTP on shunt's queues: /delayq/ping and /delayq/job/add, pop, finish and info. Its
// clients work as they are.
//
// THE PROTOCOL HAS NO TOKENS. Whoever reaches the listener may add, pop, see and finish all jobs of its prefix. So it
// belongs on loopback, or behind a list of networks. What a browser sends is refused, since any page that is open on
// the machine could send it.
//
// A request has any method and a body of JSON; the answer is always 200:
//
//	{"jobid":"1","name":"n","topic":"mails","data":"…","exectime":1790000000}
//	{"code":"0","info":"added","data":"{\"jobid\":\"1\",…,\"ttr\":20,\"state\":0}"}
//
// code is "0" where it went well, else "1", and info says why. data is a text, of the job as JSON. exectime is in
// seconds since 1970; 0 is in 1 s. A job's state is 0 delayed, 1 ready, 2 popped, 3 failed, 4 finished.
//
// A pop does not wait. The job is the client's for its ttr, in seconds, which add may give beside: 20 by default. If it
// is not finished by then it is popped again, or has failed after its last try. finish means that the job is done,
// whoever says so; it also ends jobs that nobody has popped. A job that was popped and finished is shown, and its id
// stays taken, for a day.
//
// finish and info may give the topic, which spares a search through all of them. What is said of ids in package gmq
// holds here, too.
package delayq
