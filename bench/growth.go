package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// backlogs drains backlogs of several sizes: of a large one a part, small ones again and again.
func backlogs(ctx context.Context, q queue, t task) (samples []sample, err error) {
	least := t.n
	for _, t.n = range t.backlogs {
		name := "backlog-" + thousands(t.n)
		if need := t.n * (t.size + 200); need > freeMemory() {
			t.note("%s is left out: it needs %d MB of memory", name, need>>20)
			continue
		}
		t.want = min(t.n, t.handled)
		handled, seconds := 0, 0.0
		for handled == 0 || handled < least {
			if err := fill(ctx, q, t); err != nil {
				return nil, err
			}
			w, err := drain(ctx, q, t)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			handled += t.want
			seconds += float64(t.want) / w.rate
		}
		if t.want < t.n {
			t.note("%s: the rate of its first %s", name, thousands(t.want))
		}
		samples = append(samples, sample{name, float64(handled) / seconds, perSecond})
	}
	return samples, nil
}

func pools(ctx context.Context, q queue, t task) (samples []sample, err error) {
	for _, t.workers = range t.pools {
		t.lists = t.workers
		w, err := fillAndDrain(ctx, q, t)
		if err != nil {
			return nil, fmt.Errorf("%d workers: %w", t.workers, err)
		}
		samples = append(samples, sample{fmt.Sprint("workers-", t.workers), w.rate, perSecond})
	}
	return samples, nil
}

// channels spreads the messages and the workers over several channels, each with a receiver of its own.
func channels(ctx context.Context, q queue, t task) (samples []sample, err error) {
	open := 0.0
	t.atRest = func() error { // only then do the workers wait for more
		if err := sleep(ctx, t.settle); err != nil {
			return err
		}
		n, err := t.srv.info("clients", "connected_clients")
		open = n - 1 // this one
		return err
	}
	for _, t.over = range t.channels {
		w, err := fillAndDrain(ctx, q, t)
		if err != nil {
			return nil, fmt.Errorf("%d channels: %w", t.over, err)
		}
		name := fmt.Sprint("channels-", t.over)
		samples = append(samples, sample{name, w.rate, perSecond}, sample{name + "-connections", open, connections})
	}
	return samples, nil
}

// processes has child processes drain one backlog.
func processes(ctx context.Context, q queue, t task) (samples []sample, err error) {
	if _, ok := q.(drainer); ok { // which depth is best
		w, err := fillAndDrain(ctx, q, t)
		if err != nil {
			return nil, err
		}
		t.depth = w.depth
	}
	t.n *= 4
	for _, n := range t.processes {
		rate, err := drainInChildren(ctx, q, t, n)
		if err != nil {
			return nil, fmt.Errorf("%d processes: %w", n, err)
		}
		samples = append(samples, sample{fmt.Sprint("processes-", n), rate, perSecond})
	}
	return samples, nil
}

// thousands is a number as the names of measures have it: 10k, 1m.
func thousands(n int) string {
	switch {
	case n >= 1e6 && n%1e6 == 0:
		return strconv.Itoa(n/1e6) + "m"
	case n >= 1e3 && n%1e3 == 0:
		return strconv.Itoa(n/1e3) + "k"
	}
	return strconv.Itoa(n)
}

// freeMemory is in bytes; where the system does not tell, it is enough.
func freeMemory() int {
	text, _ := os.ReadFile("/proc/meminfo")
	kb, err := strconv.Atoi(strings.TrimSuffix(field(string(text), "MemAvailable"), " kB"))
	if err != nil {
		return 1 << 62
	}
	return kb << 10
}
