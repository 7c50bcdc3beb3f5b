// Package planted is where the fault harness plants mistakes, to be seen to catch them. Outside of the harness every
// variable is nil or false. They are set before the first Queue is opened, and not changed afterwards.
package planted

// Do runs one command on its own, on the connection that the code in question uses.
type Do func(name string, args ...any) (any, error)

var (
	// Reap replaces the script that moves what a dead worker's list holds to prepare.
	Reap func(do Do, list, prepare string) (moved int, err error)
	// Promote replaces the script that moves due messages from delay to prepare.
	Promote func(do Do, delay, prepare string) (moved int, err error)

	// IgnoreLostReply keeps a receiver's incarnation after a connection broke that owed it a reply.
	IgnoreLostReply bool
	// IgnoreWaiterBreak does so where the connection was a waiter's.
	IgnoreWaiterBreak bool
	// IgnoreCancelled has a worker start what was cancelled.
	IgnoreCancelled bool
)
