package main

import "time"

// load is how much of everything a run does.
type load struct {
	n       int // messages of a rate
	slowed  int // of -quick: slow systems get so many times fewer
	workers int
	size    int           // of a payload, in bytes, at least 8
	stall   time.Duration // once nothing was handled for so long, what is missing is lost

	waves        int           // of messages that each worker waits 5 ms for
	wakes        int           // messages that come one at a time
	wakeFor      time.Duration // and no more of them after so long
	waiting      int           // messages far in the future, or with ids
	waitFor      time.Duration // and no more of them after so long
	due          int           // messages that come due
	dueFor       time.Duration // over so long
	alive        int           // messages with ids while others are enqueued
	calls        int           // by id
	callFor      time.Duration // and no more of them after so long
	overdue      int           // messages to promote
	overdueBytes int           // and no more of them than so many bytes
	settle       time.Duration // until a receiver has nothing to do but its routine
	idleFor      time.Duration // that the routine is watched
	patience     time.Duration // with the recovery of what a killed process held
	lease        time.Duration // of shunt; 0: its default

	// The axes of growth.
	backlogs, pools, channels, processes, receivers []int
	handled                                         int // of a backlog at most
}

func defaultN(quick bool) int {
	if quick {
		return 40_000
	}
	return 200_000
}

func sized(quick bool, n, workers int) load {
	l := load{
		n: n, slowed: 1, workers: workers, size: 128, stall: 20 * time.Second,
		waves: 400, wakes: 500, wakeFor: 10 * time.Second,
		waiting: 1_000_000, waitFor: 15 * time.Second, due: 500, dueFor: 3 * time.Second,
		alive: 10_000, calls: 4000, callFor: 20 * time.Second,
		overdue: 300_000, overdueBytes: 256 << 20,
		settle: 3 * time.Second, idleFor: 10 * time.Second, patience: 3 * time.Minute,
		backlogs: []int{10_000, 1_000_000, 10_000_000}, handled: 1_000_000,
		pools: []int{
			1,
			8,
			64,
			512,
		}, channels: []int{1, 10, 1000}, processes: []int{1, 2, 4}, receivers: []int{1, 10, 100, 300},
	}
	if quick {
		l.slowed, l.wakes, l.wakeFor = 8, 100, 700*time.Millisecond
	}
	return l
}

// task is one measurement's part of it.
type task struct {
	load
	srv    *server
	system system
	note   func(format string, args ...any) // of what the figures do not show

	want   int           // messages, of n, that are to be handled
	first  int           // number of the first one that is enqueued
	batch  int           // of an enqueue
	wait   time.Duration // of a handler
	over   int           // channels that the messages are spread over; 0: one
	atRest func() error  // is called when all is handled and the workers are still there

	// The limit's.
	lists  int  // that it moves to; 0: one
	header int  // bytes of an element that are not payload; 0: to be found out
	bare   bool // its elements are the payloads alone
	depth  int  // of the pipeline, where it does not try all
}
