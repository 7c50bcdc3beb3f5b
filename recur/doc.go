// Package recur enqueues messages of package shunt again and again: at the times of a cron expression, or at an
// interval.
//
//	t := &recur.Timetable{Queue: q}
//	err := t.Add(ctx, "nightly", recur.Cron("30 2 * * *", "Europe/Berlin"), &Report{})
//	err = t.Add(ctx, "poll", recur.Every(30*time.Second), &Poll{})
//	shutdown, err := t.Run(ctx, "reports", "polls") // any number of processes may
//	err = shutdown(ctx)
//
// # Ticks
//
// A tick is a time at which a recurring message is enqueued. Its definition, and its next tick, are one record in
// Redis, beside the channel of the message. Every process that runs the channel sets a timer for the next tick, by the
// clock of Redis, and tries. One script compares the record with what the process had read, enqueues, and writes the
// tick after it. So each tick is one message. It does not matter how many processes run, which of them is killed, or
// which reply is lost. There is no leader and no lease. The process that fired last tries first. The others try 3 to
// 10 ms later, unless they have heard of it. So a process that dies delays a tick by no more.
//
// All processes hear of every change to a recurring message. They hear of it at once where the Redis user may publish
// and subscribe. Where it may not, or a network has swallowed a subscription without a word, they do within 5 s or so.
//
// # Missed ticks
//
// A tick that no process could enqueue in time is enqueued late, up to [Grace]. If no process ran for longer than that,
// or Redis was away, that tick and all since are missed. [Missed] says which of them are enqueued: none ([Skip]), the
// latest ([One], the default), or up to n of the latest ([All]). Ticks that pass while a message is paused are not
// missed.
//
// # Daylight saving
//
// A cron expression asks for what a clock in its zone shows. An hour that the clock leaves out in spring has no ticks:
// 02:30 does not come that day. An hour that it shows twice in autumn has its ticks twice: 02:30 comes two times, an
// hour apart. For exactly one tick a day choose an hour that the zone never shifts, or the zone UTC. Intervals have no
// zone. The zones are those of the host, of the Go installation, or of a program that imports time/tzdata.
package recur
