package push

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// A change holds for all processes within a second, and messages under way end as they began.
func TestChangeUnderWay(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := shared(t)
	other := newSite(t, redistest.Shared(t).URL(), s.pool)
	first := newEndpoint(t, nil)
	held := make(chan struct{})
	slow := newEndpoint(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		select {
		case <-held:
		case <-r.Context().Done():
		}
	})
	at := "/push/" + s.ns() + "/g"
	s.group("g", slow.URL, map[string]any{"workers": 2})
	for i := range 4 {
		s.publish("q", fmt.Sprint("early", i))
	}
	until(t, "all are under way", func() bool { return len(slow.all()) == 4 })
	other.want(200, "", "PATCH", at, `{"endpoint":"`+first.URL+`","workers":3}`)
	changed := time.Now()
	until(t, "both have more workers", func() bool {
		more := 0
		for _, r := range s.receivers("q") { // the old ones wait for their requests
			more += r.Workers / 3
		}
		return more == 2
	})
	for i := range 20 {
		s.publish("q", fmt.Sprint("late", i))
	}
	until(t, "the new endpoint has all new messages", func() bool { return len(first.all()) == 20 })
	if took := time.Since(changed); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
	if n := len(slow.all()); n != 4 {
		t.Errorf("the old endpoint has got %d", n)
	}
	close(held)
	s.empty("q")
	if n := len(slow.all()) + len(first.all()); n != 24 {
		t.Errorf("%d requests for 24 messages", n)
	}
}

// The connections to an endpoint that is left are closed, and those to one that stays are not left open either.
func TestConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	var open atomic.Int64
	e := unstarted(nil)
	e.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	e.Start()
	t.Cleanup(e.Close)
	s, other := shared(t), newEndpoint(t, nil)
	at := "/push/" + s.ns() + "/g"
	s.group("g", e.URL, nil)
	for _, change := range [][3]string{
		{"PATCH", at, `{"endpoint":"` + other.URL + `"}`}, {"POST", at + "/pause", ""}, {"DELETE", at, ""},
	} {
		s.do("PATCH", at, `{"endpoint":"`+e.URL+`"}`)
		s.do("POST", at+"/resume", "")
		until(t, "a connection is open", func() bool { s.publish("q", "x"); s.empty("q"); return open.Load() > 0 })
		if status, text := s.do(change[0], change[1], change[2]); status > 299 {
			t.Fatal(text)
		}
		until(t, "none is open after "+change[0], func() bool { return open.Load() == 0 })
	}
}

// A receiver that goes on under other settings is given the longest timeout that its requests have begun with.
func TestLongerTimeout(t *testing.T) {
	t.Parallel()
	g := Group{Settings: NewSettings(), State: Active}
	began := g
	r := &runner{serving: &began}
	for _, ms := range []int64{60_000, 1000} {
		if g.TimeoutMS = ms; !r.apply(t.Context(), &g) || r.serving.TimeoutMS != 60_000 {
			t.Errorf("%d ms: %d", ms, r.serving.TimeoutMS)
		}
	}
}

// A stop that comes with a longer timeout gives it, too: a request may have begun with it a moment before.
func TestLongerTimeoutAtAStop(t *testing.T) {
	t.Parallel()
	g := Group{Settings: NewSettings(), State: Paused}
	r := &runner{p: &Pusher{Log: slog.New(slog.DiscardHandler)}, serving: &Group{Settings: g.Settings}}
	r.live.Store(&sender{transport: new(http.Transport)})
	var left time.Duration
	r.shutdown = func(ctx context.Context) error {
		end, _ := ctx.Deadline()
		left = time.Until(end)
		return nil
	}
	g.TimeoutMS = 60_000
	r.apply(t.Context(), &g)
	if r.ending.Wait(); left < time.Minute {
		t.Errorf("requests of a minute have %v", left)
	}
}

// A deleted group ends what is under way, and takes nothing more. What waits is there for the next one. A pause does
// the same.
func TestDeleteUnderWay(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	for _, how := range []string{"delete", "pause"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			counted := prometheus.NewRegistry()
			s := shared(t, func(p *Pusher) { p.Metrics = NewMetrics(counted) })
			held := make(chan struct{})
			e := newEndpoint(t, func(w http.ResponseWriter, r *http.Request, _ string) {
				select {
				case <-held:
				case <-r.Context().Done():
				}
			})
			const n, workers = 30, 4
			s.group("g", e.URL, map[string]any{"workers": workers})
			for i := range n {
				s.publish("q", fmt.Sprint(i), shunt.ID(fmt.Sprint(i)))
			}
			until(t, "some are under way", func() bool { return len(e.all()) == workers })
			at := "/push/" + s.ns() + "/g"
			if how == "delete" {
				s.want(204, "", "DELETE", at, "")
			} else {
				s.want(200, "", "POST", at+"/pause", "")
			}
			until(t, "it stops taking", func() bool { return strings.Contains(s.log.String(), "runs no more") })
			close(held)
			until(t, "what is under way ends", func() bool { return len(s.receivers("q")) == 0 })
			if got, left := len(e.all()), s.count("q", shunt.StatePrepare, shunt.StateDelay); got != workers ||
				left != n-workers {
				t.Errorf("%d requests, and %d are left of %d", got, left, n)
			}
			if how == "delete" {
				until(t, "nothing tells of it any more", func() bool {
					families, err := counted.Gather()
					return err == nil && len(families) == 0
				})
				s.group("g", e.URL, nil)
			} else {
				s.want(200, "", "POST", at+"/resume", "")
			}
			s.empty("q")
			if got := len(e.all()); got != n {
				t.Errorf("%d requests for %d messages", got, n)
			}
		})
	}
}

// Changes in quick succession, of all sorts, lose nothing.
func TestRestlessGroup(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := shared(t)
	other := newSite(t, redistest.Shared(t).URL(), s.pool)
	e := newEndpoint(t, func(http.ResponseWriter, *http.Request, string) { time.Sleep(time.Millisecond) })
	s.group("g", e.URL, nil)
	at := "/push/" + s.ns() + "/g"
	const n = 1000
	var work sync.WaitGroup
	work.Go(func() {
		for i := range n {
			s.publish("q", fmt.Sprint(i))
		}
	})
	for i := range 30 {
		by := []*site{s, other}[i%2]
		switch i % 5 {
		case 0:
			by.do("POST", at+"/pause", "")
		case 1:
			by.do("POST", at+"/resume", "")
		case 2:
			by.do("PATCH", at, fmt.Sprintf(`{"workers":%d,"queues":["q","p%d"]}`, 1+i%7, i))
		case 3:
			by.do("PATCH", at, fmt.Sprintf(`{"endpoint":"%s/%d"}`, e.URL, i))
		case 4:
			by.do("DELETE", at, "")
			s.group("g", e.URL, nil)
		}
		time.Sleep(20 * time.Millisecond) // the pace of the changes
	}
	s.do("POST", at+"/resume", "")
	work.Wait()
	s.empty("q")
	seen := map[string]int{}
	for _, g := range e.all() {
		seen[g.body]++
	}
	twice := 0
	for i := range n {
		if seen[fmt.Sprint(i)] == 0 {
			t.Errorf("message %d is lost", i)
		} else if seen[fmt.Sprint(i)] > 1 {
			twice++
		}
	}
	if twice > 0 {
		t.Errorf("%d messages were posted twice, without a fault", twice)
	}
}

// Two processes see each other's changes within a second, also where no hint comes.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	here, there := newSite(t, b.URL(), "default"), newSite(t, b.URL(), "default")
	e := newEndpoint(t, nil)
	here.group("g", e.URL, nil)
	took := until(t, "both run it", func() bool { return len(here.receivers("q")) == 2 })
	t.Logf("both run after %v", took)
	const soon = 2 * time.Second // a look, and what it starts and ends
	if took > soon {
		t.Errorf("both run after %v", took)
	}
	there.want(204, "", "DELETE", "/push/default/g", "")
	if took := until(t, "none runs it", func() bool { return len(here.receivers("q")) == 0 }); took > soon {
		t.Errorf("none runs after %v", took)
	}
	hinted := time.Hour
	for tries := 0; tries < 3 && hinted > 1750*time.Millisecond; tries++ { // the machine may be away
		hinted = 0
		for range 10 { // looks alone would take 3.3 s on average
			here.group("g", e.URL, nil)
			hinted += until(t, "both run it", func() bool { return len(here.receivers("q")) == 2 })
			there.want(204, "", "DELETE", "/push/default/g", "")
			until(t, "none runs it", func() bool { return len(here.receivers("q")) == 0 })
		}
	}
	if hinted > 1750*time.Millisecond {
		t.Errorf("%v for 10 changes with hints", hinted)
	}
	here.group("g", e.URL, nil)
	until(t, "both run it", func() bool { return len(here.receivers("q")) == 2 })
	text := b.Do("HGET", groupsKey+"default", "default/g").([]byte)
	b.Do("HSET", groupsKey+"default", "default/g", strings.Replace(string(text), `"active"`, `"paused"`, 1))
	b.Do("INCR", versionKey) // and no hint
	if took := until(t, "none runs it", func() bool { return len(here.receivers("q")) == 0 }); took > soon {
		t.Errorf("without a hint none runs after %v", took)
	}
	b.Do("HSET", groupsKey+"default", "default/g", "{")
	b.Do("INCR", versionKey)
	until(t, "the log says that it is wrong", func() bool {
		return strings.Contains(here.log.String(), "its record in Redis is wrong")
	})
	here.want(200, `"groups":[{`, "GET", "/push?pool=default", "")
	here.want(204, "", "DELETE", "/push/default/g", "")
}

// While Redis is away groups run on, and they follow changes when it is back.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t, "appendonly yes", "appendfsync always")
	s, e := newSite(t, b.URL(), "default"), newEndpoint(t, nil)
	s.group("g", e.URL, nil)
	s.publish("q", "before")
	s.empty("q")
	b.Kill()
	until(t, "the log says so", func() bool { return strings.Contains(s.log.String(), "the groups cannot be read") })
	if status, text := s.do("GET", "/push?pool=default", ""); status != 500 || strings.Contains(text, "dial") {
		t.Errorf("%d %s", status, text)
	}
	b.Restart()
	until(t, "it publishes", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return s.queue.Enqueue(ctx, shunt.Raw("default/q", []byte("after"))) == nil
	})
	until(t, "it is posted", func() bool { return len(e.of("after")) > 0 })
	s.want(200, "", "POST", "/push/default/g/pause", "")
	until(t, "it follows", func() bool { return len(s.receivers("q")) == 0 })
	if n := strings.Count(s.log.String(), "the groups cannot be read"); n != 1 {
		t.Errorf("that was logged %d times", n)
	}
}

// The end of Run waits for requests under way for Grace; then they are cut off and their messages go back, unharmed.
func TestEnd(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	var patient atomic.Bool
	e := newEndpoint(t, func(w http.ResponseWriter, r *http.Request, body string) {
		if body == "short" {
			time.Sleep(100 * time.Millisecond) // longer than the end takes otherwise
			return
		}
		if !patient.Load() {
			<-r.Context().Done()
		}
	})
	s := shared(t, func(p *Pusher) { p.Grace = time.Second })
	s.group("g", e.URL, nil)
	s.publish("q", "long", shunt.ID("long"))
	s.publish("q", "short", shunt.ID("short"))
	until(t, "both are under way", func() bool { return len(e.all()) == 2 })
	began := time.Now()
	s.stop()
	if took := time.Since(began); took < 900*time.Millisecond || took > 4*time.Second {
		t.Errorf("it ended after %v", took)
	}
	s.event(shunt.EventAcked, "short")
	if n := s.count("q", shunt.StatePrepare); n != 1 {
		t.Errorf("%d messages have gone back", n)
	}
	patient.Store(true)
	next := newSite(t, redistest.Shared(t).URL(), s.pool)
	if ev := next.event(shunt.EventAcked, "long"); ev.Attempt != 1 {
		t.Errorf("an attempt was counted: %+v", ev)
	}
}

// A group that cannot start is tried again, and the log says so once.
func TestStartIsTriedAgain(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	s, e := newSite(t, b.URL(), "default"), newEndpoint(t, nil)
	b.Do("SET", "{default/q}.prepare", "no list")
	s.group("g", e.URL, nil)
	until(t, "the log says so", func() bool { return strings.Contains(s.log.String(), "a group does not start") })
	s.group("other", e.URL, map[string]any{"queues": []string{"p"}}) // which is not held up
	s.publish("p", "other")
	s.empty("p")
	b.Do("DEL", "{default/q}.prepare")
	s.publish("q", "x")
	s.empty("q")
	if n := strings.Count(s.log.String(), "a group does not start"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
}

// A 410 that cannot be written down costs nothing, and is written down by a later one.
func TestGoneIsNotedLater(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	s := newSite(t, b.URL(), "default")
	e := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, _ string) { w.WriteHeader(http.StatusGone) })
	s.group("g", e.URL, nil)
	until(t, "it runs", func() bool { return len(s.receivers("q")) == 1 })
	b.Do("RENAME", groupsKey+"default", "kept")
	b.Do("SET", groupsKey+"default", "no hash")
	s.publish("q", "x", shunt.ID("x"))
	until(t, "the log says so", func() bool { return strings.Contains(s.log.String(), "a group could not be stopped") })
	s.event(shunt.EventSnoozed, "x")
	b.Do("RENAME", "kept", groupsKey+"default")
	until(t, "it is stopped", func() bool {
		_, text := s.do("GET", "/push/default/g", "")
		return strings.Contains(text, `"stopped"`)
	})
	var st shunt.Status
	until(t, "its handler has ended", func() (over bool) {
		var err error
		st, err = s.queue.Status(context.Background(), shunt.ByID("default/q", "x"))
		return err == nil && st.State != shunt.StateDoing
	})
	if st.Attempt != 0 {
		t.Errorf("%+v", st)
	}
}

// A group that is made anew has counters of its own, whatever still runs of the one before.
func TestMadeAnew(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	counted := prometheus.NewRegistry()
	s := shared(t, func(p *Pusher) { p.Metrics = NewMetrics(counted) })
	held := make(chan struct{})
	slow := newEndpoint(t, func(_ http.ResponseWriter, r *http.Request, _ string) {
		select {
		case <-held:
		case <-r.Context().Done():
		}
	})
	fast := newEndpoint(t, func(http.ResponseWriter, *http.Request, string) {})
	total := func() (n float64) {
		families, _ := counted.Gather()
		for _, f := range families {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
		return n
	}
	s.group("g", slow.URL, nil)
	s.publish("q", "1")
	until(t, "it is under way", func() bool { return len(slow.all()) == 1 })
	s.want(204, "", "DELETE", "/push/"+s.ns()+"/g", "")
	until(t, "it stops taking", func() bool { return strings.Contains(s.log.String(), "runs no more") })
	s.group("g", fast.URL, nil)
	s.publish("q", "2")
	until(t, "the new one counts", func() bool { return total() == 1 })
	close(held)
	until(t, "the old one has ended", func() bool { return len(s.receivers("q")) == 1 })
	s.empty("q")
	if n := total(); n != 1 {
		t.Errorf("it counts %v", n)
	}
}
