package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/example/internal/server"
)

const (
	// lease is short, since every run waits for the one before it, if that was killed, to be given up.
	lease = 2 * time.Second
	// patience is how long Ctrl-C lets files be read to their end.
	patience = 3 * time.Second
	// batch is how many messages are enqueued at once: enough that the round trips do not count.
	batch = 500
)

// run is one run of the program.
type run struct {
	config
	server   *server.Server
	q        *shunt.Queue
	channel  string
	prefix   string // of names: DIR as it was given
	ledger   *ledger
	tally    *tally
	progress *progress
	began    time.Time
	took     time.Duration // until the last file was hashed; 0: not yet

	enqueued  atomic.Int64 // files, by this process
	hashed    atomic.Int64 // likewise
	bytes     atomic.Int64
	recovered atomic.Int64  // messages that a killed process had in hand
	deaths    chan struct{} // of capacity 1: a message went to dead

	met, away bool // Redis; the events' goroutine's
}

func newRun(c config, s *server.Server) *run {
	r := &run{
		config: c, server: s, tally: newTally(), progress: newProgress(os.Stderr), began: time.Now(),
		prefix: strings.TrimRight(filepath.ToSlash(c.dir), "/") + "/", deaths: make(chan struct{}, 1),
	}
	// The same command finds its messages again; other directories and manifests on the same Redis do not meet them.
	id := sha256.Sum256([]byte(absolute(c.dir) + "\x00" + absolute(c.out)))
	r.channel = fmt.Sprintf("checksum.%x", id[:8])
	r.q = &shunt.Queue{Pool: s.Pool, Lease: lease, Timeout: -1, MaxDead: -1, DeadFor: -1, Events: r.event}
	return r
}

// absolute is "" for "".
func absolute(path string) string {
	if path == "" {
		return ""
	}
	if a, err := filepath.Abs(path); err == nil {
		return a
	}
	return path
}

func (r *run) name(path string) string { return r.prefix + path }

// event hears what no handler does: of messages that come back from the dead, and of those that go there.
func (r *run) event(e shunt.Event) {
	switch e.Kind {
	case shunt.EventRecovered, shunt.EventSuspected:
		r.recovered.Add(int64(e.N))
	case shunt.EventRejected, shunt.EventPoisoned, shunt.EventUndecodable, shunt.EventEventsDropped:
		poke(r.deaths)
	case shunt.EventConnected:
		if r.away {
			r.progress.say("Redis is back")
		}
		r.met, r.away = true, false
	case shunt.EventDisconnected:
		if r.met && !r.away {
			r.progress.say("Redis is away, waiting for it: %v", e.Err)
			r.away = true
		}
	case shunt.EventReceiverError:
		r.progress.say("trouble with Redis: %v", e.Err)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// do runs to the exit status.
func (r *run) do(ctx context.Context) int {
	r.progress.say("using %s", r.server.Name)
	err := r.work(ctx)
	if err := r.q.Close(); err != nil {
		r.progress.say("closing: %v", err)
	}
	if err == nil {
		err = r.finish()
	}
	failed := r.report()
	switch {
	case ctx.Err() != nil && err != nil:
		r.summary("interrupted")
		if r.out != "" && !r.server.Embedded {
			r.progress.say("the same command continues it")
		}
		return 130
	case err != nil:
		r.progress.say("%v", err)
		r.summary("stopped")
		return 1
	case failed > 0:
		r.summary("incomplete")
		return 1
	}
	r.summary("done")
	return 0
}

// work returns nil when every file is done or failed, and Redis holds nothing more of them.
func (r *run) work(ctx context.Context) error {
	if err := r.alone(ctx); err != nil {
		return err
	}
	part := ""
	if r.out != "" {
		part = r.out + ".part"
	}
	var err error
	if r.ledger, err = openLedger(part); err != nil {
		return err
	}
	defer r.ledger.close()
	if err := r.resume(ctx); err != nil {
		return err
	}
	shutdown, err := r.q.Receive(ctx, &file{run: r}, r.workers)
	if err != nil {
		return err
	}
	err = r.handle(ctx)
	r.took = time.Since(r.began)
	if err == nil {
		r.drain(ctx)
	}
	stop, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if e := shutdown(stop); e != nil {
		r.progress.say("%v", e)
	}
	if err == nil || r.out == "" { // without a ledger nothing can be continued
		err = errors.Join(err, r.tidy())
	}
	return err
}

// alone makes sure that no other run of the same command is at work: each would wait for what the other has taken. The
// receiver of a killed run looks alive until its lease is over; that of a running one extends its lease.
func (r *run) alone(ctx context.Context) error {
	ends := make(map[string]time.Time)
	for began := time.Now(); time.Since(began) < lease; {
		receivers, err := r.q.Receivers(ctx, r.channel)
		if err != nil {
			return err
		}
		believed := false
		for _, o := range receivers {
			if !o.Alive {
				continue
			}
			first, known := ends[o.Name]
			if known && !o.LeaseEndsAt.Equal(first) {
				return fmt.Errorf("another run is at work on %s: wait for it, or stop it", r.dir)
			}
			ends[o.Name] = o.LeaseEndsAt
			believed = believed || time.Now().Before(o.LeaseEndsAt)
		}
		if !believed {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// resume finds what earlier runs have left: messages wait in Redis, lines stand in the ledger. The lists are read in
// the order in which messages move. A message that is missed all the same is enqueued a second time, and then found
// done.
func (r *run) resume(ctx context.Context) error {
	dead, err := r.q.List(ctx, r.channel, shunt.StateDead, 0, 0)
	if err != nil {
		return err
	}
	if _, err := r.q.RetryDead(ctx, r.channel, dead...); err != nil {
		return err
	}
	waiting, held := 0, 0
	for _, state := range []shunt.State{shunt.StatePrepare, shunt.StateDoing, shunt.StateDelay, shunt.StateSuspect} {
		entries, err := r.q.List(ctx, r.channel, state, 0, 0)
		if err != nil {
			return err
		}
		for _, e := range entries {
			r.want(string(e.Payload))
		}
		waiting += len(entries)
		if state == shunt.StateDoing {
			held = len(entries)
		}
	}
	if done := r.ledger.len(); done+waiting > 0 {
		r.progress.say("continuing: found %d done and %d waiting in Redis, %d of them in the hands of a killed run",
			done, waiting, held)
	}
	if len(dead) > 0 {
		r.progress.say("trying %d again that an earlier run had given up", len(dead))
	}
	return nil
}

// want notes a file that belongs into the manifest, and says whether it has to be enqueued.
func (r *run) want(path string) bool { return r.tally.want(path, r.ledger.has(path)) }

// counted counts a file that this process has hashed. Here -crash-after strikes: its line is on the disk, its message
// is still in Redis.
func (r *run) counted() {
	n := r.hashed.Add(1)
	if r.crashAfter == 0 || n < int64(r.crashAfter) {
		return
	}
	if n == int64(r.crashAfter) {
		r.progress.say("killing this process: hashed %d", n)
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
		}
	}
	select {} // the signal is on its way
}

// handle enqueues what has to be and waits until nothing is open.
func (r *run) handle(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	enqueued := make(chan error, 1)
	go func() { enqueued <- r.enqueue(ctx) }()
	defer func() {
		cancel()
		if enqueued != nil {
			<-enqueued
		}
	}()
	tick := time.NewTicker(barEvery)
	defer tick.Stop()
	look := time.NewTicker(lease)
	defer look.Stop()
	empty := 0
	for enqueued != nil || r.tally.left() > 0 {
		select {
		case err := <-enqueued:
			enqueued = nil
			if err != nil {
				return err
			}
		case <-r.tally.settled:
		case <-r.deaths:
			if err := r.bury(ctx); err != nil {
				return err
			}
		case <-r.ledger.failed:
			return r.ledger.err
		case <-tick.C:
			r.progress.show(r.tally.counts(), r.bytes.Load(), time.Since(r.began))
		case <-look.C:
			// Nobody else takes these messages, but a Redis that was flushed would let us wait for ever.
			if holds, err := r.holds(ctx); enqueued != nil || holds || err != nil {
				empty = 0
			} else if empty++; empty == 2 {
				if err := r.bury(ctx); err != nil {
					return err
				}
				if n := r.tally.left(); n > 0 {
					return fmt.Errorf("%d files are neither done nor in Redis, which must have lost them: run the "+
						"same command again", n)
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// enqueue walks the directory. Handling has begun before it ends.
func (r *run) enqueue(ctx context.Context) error {
	own := []string{absolute(r.out), absolute(r.out) + ".part", absolute(r.out) + ".tmp"}
	var ms []shunt.IMessage
	flush := func() error {
		// The embedded server copies a list for each message that is pushed, so its lists are kept short.
		for r.server.Embedded && r.tally.left() > 4*batch && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		err := r.q.EnqueueAll(ctx, ms)
		if err == nil {
			r.enqueued.Add(int64(len(ms)))
		}
		ms = ms[:0]
		return err
	}
	root := filepath.Clean(
		r.dir,
	) + string(filepath.Separator) // so that a link to a directory is followed, if DIR is one
	err := filepath.WalkDir(root, func(found string, d fs.DirEntry, err error) error {
		path, _ := filepath.Rel(root, found)
		path = filepath.ToSlash(path)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			r.tally.fail(path, reason(err).Error())
			return nil
		case !d.Type().IsRegular() || r.out != "" && slices.Contains(own, absolute(found)) || !r.want(path):
			return nil
		}
		ms = append(ms, &file{path: path, run: r})
		if len(ms) < batch {
			return nil
		}
		return flush()
	})
	if err == nil && len(ms) > 0 {
		err = flush()
	}
	if err == nil {
		r.tally.complete()
	}
	return err
}

// bury notes which files have ended among the dead letters.
func (r *run) bury(ctx context.Context) error {
	dead, err := r.q.List(ctx, r.channel, shunt.StateDead, 0, 0)
	for _, e := range dead {
		if path := string(e.Payload); !r.ledger.has(path) {
			r.tally.fail(path, e.Failure)
		}
	}
	return err
}

// holds says whether any message of this channel is in Redis, dead ones apart.
func (r *run) holds(ctx context.Context) (bool, error) {
	stats, err := r.q.Stats(ctx, r.channel)
	delete(stats, shunt.StateDead)
	n := 0
	for _, s := range stats {
		n += s.Count
	}
	return n > 0, err
}

// drain waits for messages of files that are done, which a killed run held. They come back when its lease is over, to
// be acked here. Then its receiver is no longer among the living either. If Redis is away, it is not waited for without
// end.
func (r *run) drain(ctx context.Context) {
	limit, cancel := context.WithTimeout(ctx, 5*lease)
	defer cancel()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		holds, err := r.holds(limit)
		if err == nil && !holds {
			receivers, err := r.q.Receivers(limit, r.channel)
			if alive := slices.DeleteFunc(receivers, func(o shunt.Receiver) bool { return !o.Alive }); err == nil &&
				len(alive) == 1 {
				return // our own
			}
		}
		select {
		case <-time.After(wait):
		case <-limit.Done():
			return
		}
	}
}

// tidy leaves nothing of this run in Redis; a dead letter's reason is told by report.
func (r *run) tidy() error {
	ctx := context.Background()
	if err := r.bury(ctx); err != nil {
		return err
	}
	dead, err := r.q.List(ctx, r.channel, shunt.StateDead, 0, 0)
	if err == nil {
		_, err = r.q.DeleteDead(ctx, r.channel, dead...)
	}
	if err == nil {
		_, err = r.q.Purge(ctx, r.channel, shunt.StatePrepare, shunt.StateDelay, shunt.StateSuspect)
	}
	return err
}

// finish writes the manifest: each file once, sorted by name.
func (r *run) finish() error {
	var manifest []byte
	for _, path := range slices.Sorted(maps.Keys(r.tally.wanted)) {
		if s, done := r.ledger.sums[path]; done {
			manifest = appendLine(manifest, s, r.name(path))
		}
	}
	if r.out != "" {
		return r.ledger.replace(r.out, manifest)
	}
	_, err := os.Stdout.Write(manifest)
	return err
}

// report tells which files are not in the manifest, and why. It returns how many.
func (r *run) report() int {
	for _, path := range slices.Sorted(maps.Keys(r.tally.failed)) {
		r.progress.say("cannot read %q: %s", r.name(path), r.tally.failed[path])
	}
	return len(r.tally.failed)
}

func (r *run) summary(how string) {
	if r.ledger == nil { // it had not begun
		return
	}
	took, bytes, c := cmp.Or(r.took, time.Since(r.began)), r.bytes.Load(), r.tally.counts()
	r.progress.say(
		"%s: %d of %d files; in this run enqueued %d, hashed %d, %s in %.2f s, %s/s; recovered %d, failed %d",
		how,
		c.closed-c.failed,
		c.known,
		r.enqueued.Load(),
		r.hashed.Load(),
		size(bytes),
		took.Seconds(),
		size(perSecond(bytes, took)),
		r.recovered.Load(),
		c.failed,
	)
}
