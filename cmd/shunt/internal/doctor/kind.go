package doctor

import "github.com/shuntmq/shunt"

// Kind names what is wrong, for programs. Those of shunt.FindingKind are among them.
type Kind string

// What may be wrong with Redis, besides what Queue.Health finds.
const (
	EvictionLater Kind = "eviction-later"
	Fsync         Kind = "fsync"
	HostMemory    Kind = "host-memory"
	Fragmented    Kind = "fragmented"
	Swapped       Kind = "swapped"
	SlowFork      Kind = "slow-fork"
	Loading       Kind = "loading"
	Lag           Kind = "replication-lag"
	ReplicaDown   Kind = "replica-down"
	Timeout       Kind = "timeout"
	KeepAlive     Kind = "tcp-keepalive"
	BufferPubSub  Kind = "buffer-pubsub"
	BufferNormal  Kind = "buffer-normal"
	BulkLength    Kind = "bulk-length"
	Clients       Kind = "clients"
	RightsNeeded  Kind = "rights-needed"
	RightsLacking Kind = "rights-lacking"
	Skew          Kind = "clock-skew"
	RoundTrip     Kind = "round-trip"
	TooOld        Kind = "too-old"
	Cluster       Kind = "cluster"
	SlowScripts   Kind = "slow-scripts"
)

// What may be wrong with keys and channels.
const (
	WrongType     Kind = "wrong-type"
	Expires       Kind = "expires"
	Unlisted      Kind = "unlisted"
	Empty         Kind = "empty-channels"
	DoingOfNobody Kind = "doing-of-nobody"
	DeadUnswept   Kind = "dead-unswept"
	LeaseOfNobody Kind = "lease-of-nobody"
	Registry      Kind = "registry-malformed"
	IDs           Kind = "ids-without-messages"
	Marks         Kind = "marks-without-messages"
	Unforgotten   Kind = "unforgotten"
	NoKeeper      Kind = "no-keeper"
	Starving      Kind = "starving"
	HugeChannel   Kind = "huge"
	HotChannel    Kind = "hot"
	NearSize      Kind = "near-size"
	Newer         Kind = "newer-elements"
	DeadUnbounded Kind = "dead-unbounded"
)

// of is the Kind of a finding of Queue.Health.
func of(k shunt.FindingKind) Kind { return Kind(k) }

// why says why a kind matters.
var why = map[Kind]string{
	of(shunt.FindingUnreadable):   "no message of the channel can be taken or counted",
	of(shunt.FindingNoCounts):     "rates, failures and trends are not known",
	of(shunt.FindingNobodyTakes):  "the messages wait for ever",
	of(shunt.FindingGrows):        "messages wait longer and longer, and Redis fills up",
	of(shunt.FindingBacklog):      "a message that comes now waits that long",
	of(shunt.FindingNothingEnds):  "workers may hang, or each message may take very long",
	of(shunt.FindingOverdue):      "delayed messages and retries come late, or never",
	of(shunt.FindingLeaseOverdue): "a message that was pulled and not settled does not come back",
	of(shunt.FindingSuspects):     "each of them may kill the next process; after the fourth death it goes to dead",
	of(shunt.FindingFailing):      "most work is done in vain",
	of(shunt.FindingDying):        "nobody handles a dead letter again by itself",
	of(shunt.FindingDeadFull):     "of every further dead letter the oldest is lost",
	of(shunt.FindingLate):         "a verdict that comes late has its message handled twice",
	of(shunt.FindingEviction):     "a whole list, that is a whole queue, may vanish",
	of(shunt.FindingMemory):       "a full Redis refuses every enqueue",
	of(shunt.FindingPersistence):  "after a crash all is lost that came since, and Redis may refuse writes",
	of(shunt.FindingNoAOF):        "after a crash all is lost that came since the last snapshot",
	of(shunt.FindingReplica):      "a replica refuses every write",

	EvictionLater: "as soon as somebody sets maxmemory, whole queues may vanish",
	Fsync:         "after a power loss up to half a minute is lost, enqueues that returned nil among it",
	HostMemory:    "the system may kill Redis when memory is short",
	Fragmented:    "Redis takes memory for which it has no use",
	Swapped:       "Redis reads from a disk what should be in memory: every command may take long",
	SlowFork:      "Redis stands still while it forks for a snapshot: leases may end, and messages be handled twice",
	Loading:       "Redis answers nobody until it has loaded its data",
	Lag:           "a failover loses what has not reached the replica, also enqueues that returned nil",
	ReplicaDown:   "a failover loses what the replica has not got",
	Timeout:       "connections of programs that are idle are closed and made anew all the time",
	KeepAlive:     "connections of machines that vanished are never closed, and count to maxclients",
	BufferPubSub:  "Redis closes subscriptions, and delayed messages come late",
	BufferNormal:  "Redis closes the connection that a large reply is for, again and again",
	BulkLength:    "Redis closes the connection that enqueues a large message",
	Clients:       "Redis refuses new connections at maxclients",
	RightsNeeded:  "this user cannot enqueue or receive",
	Skew:          "what producers say of time and what Redis says differ: ages, waits and At are wrong by as much",
	RoundTrip:     "a beat that takes too long loses its lease, and messages are handled twice",
	TooOld:        "scripts of shunt do not run there",
	Cluster:       "shunt does not follow slots to other nodes yet",
	SlowScripts:   "Redis serves nobody else meanwhile",

	WrongType:     "every command on that key fails, and messages stay where they are",
	Expires:       "when its time is over Redis drops all messages in that key, without a word",
	Unlisted:      "Overview, Upkeep and the desk do not see the channel",
	Empty:         "every look at all channels asks for them in vain",
	DoingOfNobody: "no sweep knows of these messages: they are never handled",
	DeadUnswept:   "what dead receivers held is not handled until somebody sweeps",
	LeaseOfNobody: "no lease ends for these messages: they are never handled",
	Registry:      "no sweep can read that entry, nor empty its lists",
	IDs:           "every enqueue with such an ID is refused as a duplicate, for ever",
	Marks:         "they take memory, and slow down every message with an ID",
	Unforgotten:   "outcomes and IDs are kept for longer than was asked, and their IDs stay taken",
	NoKeeper:      "when they are due nobody moves them to prepare",
	Starving:      "workers are there, and do not take what waits",
	HugeChannel:   "Redis takes long to save and to copy it; a search by serial takes a second a million",
	HotChannel:    "one Redis thread serves it all",
	NearSize:      "a retry adds the text of its failure; an element beyond MaxSize is refused",
	Newer:         "receivers of an older version send such messages to dead",
	DeadUnbounded: "dead letters fill Redis up",
}
