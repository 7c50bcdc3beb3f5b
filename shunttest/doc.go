// Package shunttest is a test kit for programs that use shunt: a Queue on a Redis inside the test's process, assertions
// on what was enqueued, one message handled at a chosen attempt and age, and channels drained to the end.
//
// What a test meets is shunt itself: the real Queue with the program's own configuration, its scripts, its receivers,
// its middleware. Only Redis is another, miniredis, so nothing needs to be installed. A whole test:
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
//		// What becomes of one message?
//		outbox.Fail(errors.New("greylisted"))
//		out := q.Handle(&Welcome{Outbox: outbox}, &Welcome{To: "bob@example.org"}, shunttest.Attempt(2))
//		if out.Verdict != shunt.EventRetried || out.Wait != 5*time.Minute {
//			t.Errorf("a greylisted mail was %v", out)
//		}
//
//		// What comes of it all, the day after included?
//		outbox.Fail(nil)
//		q.Drain(&Welcome{Outbox: outbox}, &Reminder{Outbox: outbox})
//		outbox.AssertSent(t, "ann@example.org", 2)
//	}
//
// Each Queue has a Redis of its own, so tests run in parallel and channels' names need not differ. It is closed by the
// test's Cleanup, and leaves no goroutine behind: goleak.VerifyTestMain sees none, nor does a goleak.VerifyNone that
// was given to Cleanup before New was called. One that is deferred comes too early: before any Cleanup.
//
// Like the methods of testing.TB that may end a test, those of Queue are called from the test's own goroutine. They run
// handlers on others, one at a time; all that a handler wrote can be read once the call has returned. A handler that
// calls t.Fatal ends the test when its handling has ended.
package shunttest
