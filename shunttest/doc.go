// Package shunttest is a test kit for programs that use shunt. It has a Queue on a Redis inside the test's process and
// assertions on enqueued messages. It handles one message at a chosen attempt and age, and drains channels to the end.
//
// A test runs shunt itself: the real Queue with the program's own configuration, its scripts, its receivers and its
// middleware. Only Redis is replaced, by miniredis, so nothing needs to be installed. A whole test:
//
//	func TestSignUp(t *testing.T) {
//		q := shunttest.New(t, func(q *shunt.Queue) { q.MaxAttempts = 3 })
//		outbox := &mailtest.Outbox{}
//
//		// What does the program enqueue?
//		signUp(q.Queue, "ann@example.org")
//		q.AssertEnqueued(&Welcome{To: "ann@example.org"})
//		q.AssertEnqueued(&Reminder{To: "ann@example.org"}, shunttest.In(24*time.Hour))
//
//		// How does one message end?
//		outbox.Fail(errors.New("greylisted"))
//		out := q.Handle(&Welcome{Outbox: outbox}, &Welcome{To: "bob@example.org"}, shunttest.Attempt(2))
//		if out.Verdict != shunt.EventRetried || out.Wait != 5*time.Minute {
//			t.Errorf("a greylisted mail was %v", out)
//		}
//
//		// How does it all end, the day after included?
//		outbox.Fail(nil)
//		q.Drain(&Welcome{Outbox: outbox}, &Reminder{Outbox: outbox})
//		outbox.AssertSent(t, "ann@example.org", 2)
//	}
//
// Each Queue has a Redis of its own, so tests run in parallel and channels' names need not differ. The test's Cleanup
// closes it, and no goroutine is left behind. goleak.VerifyTestMain sees none, nor does a goleak.VerifyNone that was
// given to Cleanup before New was called. A deferred VerifyNone comes too early: before any Cleanup.
//
// Call the methods of Queue from the test's own goroutine, like those methods of testing.TB that may end a test. They
// run handlers on other goroutines, one at a time. All that a handler wrote can be read once the call has returned. A
// handler that calls t.Fatal ends the test when its handling has ended.
package shunttest
