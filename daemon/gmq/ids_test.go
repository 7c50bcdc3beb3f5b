package gmq

import (
	"context"
	"fmt"
	"net/rpc"
	"strings"
	"testing"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Acks reach jobs that another process has delivered, and those that no memory knows of.
func TestAckElsewhere(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	other := newSiteOf(t, s.queue, func(v *Server) { v.Topics.Prefix = s.server.Topics.Prefix })
	mine, theirs := s.client(), other.client()
	for i := range 20 {
		s.push(mine, "id", fmt.Sprint(i), "topic", fmt.Sprint("q", i), "TTR", "60")
	}
	s.pop(mine, "q7")
	if err := ack(theirs, "7"); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"7", "8", "unknown", "", strings.Repeat("x", 256), "serial:x",
		"serial:01ARZ3NDEKTSV4RRFFQ69G5FAV"} {
		if err := ack(theirs, id); err == nil || err.Error() != string(errNotReserved) {
			t.Errorf("%.20q: %v", id, err)
		}
	}
}

// An id is one job's: refused where this process knows of it, and never acked where it is not clear whose it is.
func TestSameID(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	other := newSiteOf(t, s.queue, func(v *Server) { v.Topics.Prefix = s.server.Topics.Prefix })
	third := newSiteOf(t, s.queue, func(v *Server) { v.Topics.Prefix = s.server.Topics.Prefix })
	mine, theirs := s.client(), other.client()
	s.push(mine, "id", "1", "topic", "a", "TTR", "60")
	for _, topic := range []string{"a", "b"} {
		result, err := push(mine, "id", "1", "topic", topic)
		if err != nil || !strings.HasSuffix(result, "error:has exist") {
			t.Error(result, err)
		}
	}
	s.push(theirs, "id", "1", "topic", "b", "TTR", "60")
	s.pop(theirs, "b")
	if err := ack(third.client(), "1"); err != nil { // one alone is leased
		t.Error(err)
	}
	if n := s.count("a", shunt.StatePrepare); n != 1 {
		t.Error("the wrong job was acked")
	}
	s.push(theirs, "id", "1", "topic", "b", "TTR", "60")
	s.pop(theirs, "b")
	s.pop(mine, "a")
	if err := ack(third.client(), "1"); err == nil || err.Error() != string(errSeveral) {
		t.Error(err)
	}
	for _, c := range []*rpc.Client{mine, theirs} { // each process knows which one it has delivered
		if err := ack(c, "1"); err != nil {
			t.Error(err)
		}
	}
	if n := s.count("a", shunt.StateLeased) + s.count("b", shunt.StateLeased); n != 0 {
		t.Error(n)
	}
}

// An ack of an id that this process has delivered for two topics is an error while both are leased, also where one is
// delivered again. Then it is that of the one which is left.
func TestAckOfTwo(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	other := newSiteOf(t, s.queue, func(v *Server) { v.Topics.Prefix = s.server.Topics.Prefix })
	third := newSiteOf(t, s.queue, func(v *Server) { v.Topics.Prefix = s.server.Topics.Prefix })
	s.push(s.client(), "id", "1", "topic", "a", "TTR", "60")
	s.push(other.client(), "id", "1", "topic", "b", "TTR", "60")
	c := third.client()
	s.pop(c, "a")
	s.pop(c, "b")
	if err := ack(c, "1"); err == nil || err.Error() != string(errSeveral) {
		t.Error(err)
	}
	l, err := s.queue.LeasedBy(context.Background(), shunt.ByID(s.server.Topics.Prefix+"b", "1"))
	if err != nil || l.Release(context.Background()) != nil {
		t.Fatal(err)
	}
	s.pop(c, "b")
	if err := ack(c, "1"); err == nil || err.Error() != string(errSeveral) {
		t.Error(err)
	}
	if a, b := s.count("a", shunt.StateLeased), s.count("b", shunt.StateLeased); a != 1 || b != 1 {
		t.Errorf("%d of a, %d of b", a, b)
	}
	if err := ack(other.client(), "1"); err != nil { // which has pushed b
		t.Error(err)
	}
	if err := ack(c, "1"); err != nil || s.count("a", shunt.StateLeased) != 0 {
		t.Error(err)
	}
}

// A late ack ends no job of the same id that another client has by then: neither where its own process has delivered
// that, nor where another one has.
func TestLateAckOfTwo(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	for _, both := range []bool{false, true} {
		s := newSite(t)
		other := newSiteOf(t, s.queue, func(v *Server) { v.Topics.Prefix = s.server.Topics.Prefix })
		mine, theirs := s.client(), other.client()
		s.push(mine, "id", "1", "topic", "a", "TTR", "60")
		s.push(theirs, "id", "1", "topic", "b", "TTR", "60")
		if both {
			theirs = mine
		}
		s.pop(theirs, "b")
		s.pop(mine, "a")
		l, err := s.queue.LeasedBy(context.Background(), shunt.ByID(s.server.Topics.Prefix+"a", "1"))
		if err != nil || l.Release(context.Background()) != nil { // as the end of its lease
			t.Fatal(err)
		}
		if err := ack(mine, "1"); err == nil || s.count("b", shunt.StateLeased) != 1 {
			t.Errorf("by one process: %v: %v, and b has %d", both, err, s.count("b", shunt.StateLeased))
		}
	}
}

// An ack ends the job that is leased, where this process knows one of that id that waits on another topic.
func TestAckBesideOneThatWaits(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	for _, delay := range []string{"0", "600"} {
		s := newSite(t)
		other := newSiteOf(t, s.queue, func(v *Server) { v.Topics.Prefix = s.server.Topics.Prefix })
		mine, theirs := s.client(), other.client()
		s.push(mine, "id", "1", "topic", "a", "TTR", "60", "delay", delay)
		s.push(theirs, "id", "1", "topic", "b", "TTR", "60")
		s.pop(theirs, "b")
		if err := ack(mine, "1"); err != nil || s.count("b", shunt.StateLeased) != 0 {
			t.Errorf("delay %s: %v", delay, err)
		}
		if err := ack(mine, "1"); err == nil || err.Error() != string(errNotReserved) {
			t.Errorf("delay %s: %v", delay, err)
		}
	}
}

// What a Go program has enqueued is popped and acked like any job, and a Go program handles what was pushed.
func TestGoPrograms(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	c := s.client()
	channel, err := s.server.Topics.Channel("q")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.queue.Enqueue(context.Background(), shunt.Raw(channel, []byte("plain"))); err != nil {
		t.Fatal(err)
	}
	job := s.pop(c, "q")
	if job["body"] != "plain" || job["TTR"] != "120" || !strings.HasPrefix(job["id"], "serial:") {
		t.Error(job)
	}
	if err := ack(c, job["id"]); err != nil {
		t.Error(err)
	}
	s.push(c, "id", "1", "topic", "q", "body", "b")
	ms, err := s.queue.Pull(context.Background(), shunt.PullOptions{Channels: []string{channel}})
	if err != nil || len(ms) != 1 || string(ms[0].Payload) != "b" || ms[0].ID != "1" {
		t.Fatal(ms, err)
	}
	if err := ms[0].Ack(context.Background()); err != nil {
		t.Error(err)
	}
}

// Channels of namespaces are out of reach, with a prefix and without one.
func TestNamespacesAreOutOfReach(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	for _, prefix := range []string{"", "gmq-test."} {
		s := newSite(t, func(v *Server) { v.Topics.Prefix = prefix })
		c := s.client()
		result, err := push(c, "id", "1", "topic", "ns/q")
		if err != nil || !strings.Contains(result, "without slashes") {
			t.Error(result, err)
		}
		if _, err := pop(c, "ns/q"); err == nil || !strings.Contains(err.Error(), "without slashes") {
			t.Error(err)
		}
		id := redistest.Name(t)
		channel := prefix + "ns/q" + id
		if err := s.queue.Enqueue(context.Background(), shunt.Raw(channel, nil), shunt.ID(id)); err != nil {
			t.Fatal(err)
		}
		ms, err := s.queue.Pull(context.Background(), shunt.PullOptions{Channels: []string{channel}})
		if err != nil || len(ms) != 1 {
			t.Fatal(ms, err)
		}
		if err := ack(c, id); err == nil || err.Error() != string(errNotReserved) {
			t.Error(err)
		}
	}
}
