// Package redistest gives tests a Redis to run on, and ways to break it.
//
// Start and Shared run a real redis-server, Mini an in-memory one, Each one behaviour on both. A Proxy stands between a
// client and a server and breaks the link at a chosen command, on a chosen side of its execution. A missing
// redis-server fails the tests that need it: a suite that skips its faults proves nothing.
//
// A package that uses Each or Shared needs
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
package redistest
