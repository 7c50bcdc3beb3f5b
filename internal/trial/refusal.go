package trial

// Refusals are an error reply of each kind, as Redis writes it.
var Refusals = []string{
	"LOADING Redis is loading the dataset in memory",
	"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	"OOM command not allowed when used memory > 'maxmemory'.",
	"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
	"READONLY You can't write against a read only replica.",
	"NOREPLICAS Not enough good replicas to write.",
	"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"CLUSTERDOWN Hash slot not served",
	"TRYAGAIN Multiple keys request during rehashing of slot",
	"NOSCRIPT No matching script. Please use EVAL.",
	"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
	"NOPERM User default has no permissions to run this command",
	"WRONGTYPE Operation against a key holding the wrong kind of value",
	"ERR something that nobody foresaw",
}
