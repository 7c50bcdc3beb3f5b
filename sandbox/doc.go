// Package sandbox handles messages of package shunt in child processes: handlers in any language, and handlers that
// leak, hang or crash.
//
//	p := &sandbox.Pool{Command: []string{"python3", "handler.py"}, Children: 8}
//	err := p.Validate() // complains of a wrong configuration, and of a command that is not there
//	shutdown, err := q.Receive(ctx, p.Message("pictures"), 8)
//	…
//	err = shutdown(ctx)
//	err = p.Close(ctx) // all children are gone
//
// A child that crashes, hangs, or takes too much memory or output costs its message one attempt. The failure of that
// message has the last lines of the child's standard error. No other message is affected. A Pool isolates faults, and
// not malice: a child has the rights of the user that runs it, and by default this process's environment.
//
// There are two protocols. [Lines] is the faster: a process handles one message after another. [Exec] is the simpler:
// any command that reads standard input is a handler.
//
// # The protocol Lines
//
// A child reads one line for each message from standard input, and then writes one line to standard output. Both are
// JSON objects in UTF-8, with \n at the end. The next line comes after the answer. A child must flush each answer, and
// must end when its standard input ends. It prints logs to standard error.
//
// This is a whole child in Python. Its third line sends what libraries print to standard error.
//
//	import json, sys
//
//	answers, sys.stdout = sys.stdout, sys.stderr
//
//	def handle(message):
//	    return "hello " + message["text"]
//
//	for line in sys.stdin:
//	    message = json.loads(line)
//	    try:
//	        answer = {"ok": True, "result": handle(message)}
//	    except ValueError as e:
//	        answer = {"reject": str(e)}
//	    answer["n"] = message["n"]
//	    print(json.dumps(answer), file=answers, flush=True)
//
// All other exceptions end this child. Its message is retried, with the traceback as its failure, and a new child is
// started.
//
// A line to the child has these keys. All of them are in each line, but text.
//
//	n            integer  the number of the message in this process, from 1
//	channel      string
//	serial       string   the ULID of the enqueue; "" for a payload pushed by other means
//	id           string   "" where the message has none
//	type         string   the name of its type; "" where it has none
//	attempt      integer  this handling, from 1
//	recoveries   integer  how often a dead receiver held it since it was last handled to an end
//	enqueued_at  string   RFC 3339 in UTC with milliseconds, by the producer's clock; "" where not known
//	failure      string   what the last attempt failed with; "" at the first
//	headers      object   of strings
//	payload      string   the payload in base64 (RFC 4648, with padding), whatever its bytes are
//	text         string   the payload; only there if it is valid UTF-8
//
// A child for text reads text, and one for other bytes reads payload. Neither should look at the other key: bytes that
// are no text may be valid UTF-8 by chance. A string other than the payload that is not valid UTF-8 has U+FFFD in place
// of each wrong byte. A child should ignore keys that it does not know.
//
// The answer has the message's n and exactly one verdict. All other keys, and lines of other forms, are faults.
//
//	{"n":1,"ok":true}                                 done
//	{"n":1,"ok":true,"result":"text"}                 done, with a result that is text
//	{"n":1,"ok":true,"result_base64":"AAH/"}          done, with a result of any bytes
//	{"n":1,"retry":"the reason"}                      try again after the Queue's backoff
//	{"n":1,"retry":"the reason","after_ms":2000}      try again after 2 s; 0: at once
//	{"n":1,"reject":"the reason"}                     to dead at once
//	{"n":1,"snooze_ms":2000}                          look again after 2 s (0.1 s at least); no attempt is counted
//
// The n keeps a stray line from being taken for the answer to the next message. A result is at most 1 MB, and is kept
// only for a message with an ID, as [shunt.SetResult] says; else it is dropped.
//
// A child with a fault is killed, and its message is retried. Faults are a line that is no verdict, a line of more than
// MaxOutput, more than MaxStderr on standard error, and an end before the answer. An end between two messages is no
// fault. On Linux that is so too where the next message was already in the child's pipe, and it had read nothing of it.
// Nor is an answer that came before the child's end a fault. After an answer that was followed by more output, the
// verdict counts and the child is replaced.
//
// # The protocol Exec
//
// A process is started for each message. Its standard input is the payload, byte for byte, and then ends. It need not
// read that. What it writes to standard output is the result. Its exit status is the verdict:
//
//	0             done
//	65            reject: the message goes to dead. The last lines of standard error are the reason
//	other         retry, after the Queue's backoff. The last lines of standard error are the failure
//	by a signal   retry
//
// 65 is EX_DATAERR of <sysexits.h>, and [ExitReject]. These variables are added to the environment:
//
//	SHUNT_CHANNEL  SHUNT_SERIAL  SHUNT_ID  SHUNT_TYPE  SHUNT_ATTEMPT  SHUNT_RECOVERIES
//	SHUNT_ENQUEUED_AT  SHUNT_FAILURE
//	SHUNT_HEADERS      the headers as a JSON object of strings
//
// They have the meanings that the keys of Lines have. A NUL byte becomes U+FFFD. Linux takes up to 128 KB for each: a
// message with more in its headers cannot be started.
//
// # The end of a child
//
// When a message's context ends, its child gets SIGTERM, and after [Pool].Grace SIGKILL. Contexts end by a timeout, a
// cancellation, a lost lease or a shutdown. A verdict that the child gives in that grace counts. A Lines child is
// replaced after that in any case. The failure says why it was ended.
//
// Each child leads a process group, and both signals reach the group. When a child has ended, by whatever cause, the
// rest of its group is killed. So processes that it has started end with it, unless they have left its group with
// setsid or setpgid.
//
// A command that cannot be started, or that has a fault in its first message, is not started again at once. The Pool
// waits for 0.1 s, then 0.2 s and so on up to 10 s, until a child answers its first message. Messages wait meanwhile,
// unless another child is idle.
//
// # Systems
//
//	                                            Linux   other Unix   Windows
//	a child's group is killed with it           yes     yes          no: the child alone
//	SIGTERM, and SIGKILL after the grace        yes     yes          stdin ends, TerminateProcess after the grace
//	Lines children end with a killed parent     yes     by stdin     by stdin
//	Exec children end with a killed parent      yes     no           no
//	MaxMemory                                   yes     no           no
//
// "By stdin" means that a child ends because it reads the end of its standard input, as it should. When SIGKILL ends
// the parent, Linux kills the children, but not what these have started. A child that starts processes should end them
// with itself, by prctl(PR_SET_PDEATHSIG) or by the end of a pipe.
package sandbox
