package dashboard

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/recur"
)

// A viewer who sends the forms of an operator changes nothing, and is told so.
func TestViewerChangesNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fill("mail")
	dead := d.entry("mail.dead", shunt.StateDead).Ref().String()
	ready := d.entry("mail", shunt.StatePrepare).Ref().String()
	later := d.entry("mail", shunt.StateDelay).Ref().String()
	all := func() string {
		var parts []any
		for _, c := range []string{"mail", "mail.dead"} {
			for _, s := range shunt.States {
				es, err := d.q.List(context.Background(), c, s, 0, 0)
				parts = append(parts, es, err)
			}
		}
		es, err := (&recur.Timetable{Queue: d.q}).List(context.Background(), "mail")
		return fmt.Sprint(append(parts, es, err, d.audits())...)
	}
	before := all()
	b := d.as("vera")
	var forms [][]string
	for verb := range singles {
		for _, ref := range []string{dead, ready, later} {
			forms = append(forms, []string{"verb", verb, "ref", ref, "by", "1h", "yes", "1"})
		}
	}
	for verb, states := range bulkStates {
		for _, s := range states {
			forms = append(forms, []string{"verb", verb, "c", "mail", "s", string(s), "yes", "1", "count", "9"})
		}
	}
	for verb := range recurrences {
		forms = append(forms, []string{"verb", verb, "c", "mail", "name", "nightly"})
	}
	forms = append(forms, []string{"verb", "stop-job", "c", "mail"},
		[]string{"verb", "resume-job", "c", "mail", "yes", "1"})
	for _, form := range forms {
		if _, body := b.post(403, form...); !strings.Contains(body, "viewer") {
			t.Errorf("%v: %s", form, body)
		}
	}
	if after := all(); after != before {
		t.Errorf("%s, before %s", after, before)
	}
}

// Each action on one message does what it says, asks first where it must, and is in the audit with the user's name.
func TestActions(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.as("olga")
	audit := func(verb string, n int) {
		t.Helper()
		if es := d.audits(); len(es) == 0 || es[0].Verb != verb || es[0].By != "olga" || es[0].Count != n {
			t.Errorf("%s: %+v", verb, es)
		}
	}
	d.kill("a", 3, "no")
	first := d.entry("a", shunt.StateDead).Ref().String()
	location, _ := b.post(303, "verb", "retry", "ref", first, "back", "message?ref="+url.QueryEscape(first))
	if !strings.HasPrefix(location, "./message?did=retry&n=1&ref=") || d.count("a", shunt.StatePrepare) != 1 {
		t.Error(location)
	}
	audit("retry", 1)
	b.get(200, strings.TrimPrefix(location, "./"), "1 retried.")

	es, _ := d.q.List(context.Background(), "a", shunt.StateDead, 0, 0)
	both := []string{"verb", "delete", "ref", es[0].Ref().String(), "ref", es[1].Ref().String()}
	b.post(200, both...)
	if d.count("a", shunt.StateDead) != 2 {
		t.Error("it was deleted before it was confirmed")
	}
	b.confirmed("Delete 2 messages?", both...)
	if d.count("a", shunt.StateDead) != 0 {
		t.Error("not deleted")
	}
	audit("delete", 2)

	b.confirmed("Cancel this message?", "verb", "cancel", "ref", d.entry("a", shunt.StatePrepare).Ref().String())
	if _, err := d.q.Pull(context.Background(), shunt.PullOptions{Channels: []string{"a"}}); err != nil ||
		d.count("a", shunt.StateLeased) != 0 {
		t.Error("not cancelled", err)
	}
	audit("cancel", 1)

	ref := d.enqueue("b", "x", shunt.In(time.Hour)).String()
	b.post(303, "verb", "postpone", "ref", ref, "by", "5h")
	if due := time.Until(d.entry("b", shunt.StateDelay).DueAt); due < 4*time.Hour {
		t.Error(due)
	}
	audit("postpone", 1)
	for _, by := range []string{"", "-1h", "soon", "9999999h"} {
		b.post(400, "verb", "postpone", "ref", ref, "by", by)
	}
	audit("postpone", 0)
	b.post(303, "verb", "promote", "ref", ref)
	if d.count("b", shunt.StateDelay) != 0 {
		t.Error("not promoted")
	}
	audit("promote", 1)

	// What is not there is said, and noted.
	b.post(404, "verb", "retry", "ref", es[0].Ref().String())
	if es := d.audits(); es[0].Error == "" || es[0].Count != 0 {
		t.Errorf("%+v", es[0])
	}
	b.post(400, "verb", "retry")
	b.post(400, "verb", "nothing", "c", "a")
	b.post(400, "verb", "purge", "c", "a", "s", "prepare")
	b.post(400, "verb", "cancel-all", "c", "a")
}

func TestRecurringActions(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fill("mail")
	b := d.as("olga")
	tt := &recur.Timetable{Queue: d.q}
	paused := func() bool {
		es, err := tt.List(context.Background(), "mail")
		if err != nil || len(es) != 1 {
			t.Fatal(es, err)
		}
		return es[0].Paused
	}
	b.post(303, "verb", "pause", "c", "mail", "name", "nightly")
	b.get(200, "recurring", "paused", `value="resume"`)
	if !paused() {
		t.Error("not paused")
	}
	b.post(303, "verb", "resume", "c", "mail", "name", "nightly")
	b.post(303, "verb", "run", "c", "mail", "name", "nightly")
	if paused() || d.count("mail", shunt.StatePrepare) != 2 {
		t.Error("not resumed, or not run")
	}
	if es := d.audits(); es[0].Verb != "run" || es[0].Detail != "nightly" || es[2].Verb != "pause" {
		t.Errorf("%+v", es)
	}
	_, body := b.post(404, "verb", "run", "c", "mail", "name", "nobody")
	if !strings.Contains(body, "no recurring message") {
		t.Error(near(body, "alert"))
	}
}

// ended waits for a channel's bulk action, and gives it.
func (d *desk) ended(channel string) *job {
	d.Helper()
	redistest.Until(d, 10*time.Second, "the bulk action ends", func() bool {
		j := d.d.bulks.of(channel)
		return j != nil && !j.Running
	})
	return d.d.bulks.of(channel)
}

// A bulk action asks with the count, changes what fits and no more, and is noted at its begin and end.
func TestBulk(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.as("olga")
	d.kill("mail", 30, "mailbox %d is full")
	d.kill("mail", 20, "dial tcp: refused")
	b.confirmed("Retry 30 dead letters of mail?", "verb", "retry-all", "c", "mail", "like", "mailbox # is full")
	if j := d.ended("mail"); j.Changed != 30 || j.Error != "" || j.Part() != 100 {
		t.Errorf("%+v", j)
	}
	if d.count("mail", shunt.StatePrepare) != 30 || d.count("mail", shunt.StateDead) != 20 {
		t.Error("it changed others")
	}
	es := d.audits()
	if len(es) != 2 || es[0].Count != 30 || es[0].By != "olga" ||
		!strings.HasPrefix(es[1].Detail, "begun for 30 of dead") {
		t.Errorf("%+v", es)
	}
	b.get(200, "dead?c=mail", "Retry all: done, 30 of 30")

	// What died after the question was asked stays.
	_, page := b.post(200, "verb", "delete-all", "c", "mail")
	if !strings.Contains(page, "Delete 20 dead letters of mail?") {
		t.Error(page)
	}
	for range 5 {
		m, err := d.q.Pull(context.Background(), shunt.PullOptions{Channels: []string{"mail"}})
		if err != nil || len(m) != 1 || m[0].Fail(context.Background(), shunt.Reject(fmt.Errorf("late"))) != nil {
			t.Fatal(err, len(m))
		}
	}
	b.post(303, "verb", "delete-all", "c", "mail", "yes", "1", "count", "20", "exact", "1")
	d.ended("mail")
	if left := d.count("mail", shunt.StateDead); left != 5 {
		t.Errorf("%d are left, want those 5 that were not asked for", left)
	}

	for range 3 {
		d.enqueue("later", "x", shunt.In(time.Hour))
	}
	b.confirmed("Make 3 delayed messages of later due now?", "verb", "promote-all", "c", "later", "s", "delay")
	if d.ended("later"); d.count("later", shunt.StatePrepare) != 3 {
		t.Error("not promoted")
	}
	// More than one step, of which the last is not whole; what stays in between is passed by.
	d.kill("many", 1, "stays")
	d.kill("many", 1500, "goes %d")
	b.confirmed("Delete 1,500 dead letters of many?", "verb", "delete-all", "c", "many", "failure", "goes")
	if j := d.ended("many"); j.Changed != 1500 || d.count("many", shunt.StateDead) != 1 {
		t.Errorf("%+v, and %d are left", j, d.count("many", shunt.StateDead))
	}
	b.confirmed("Cancel 3 messages of later", "verb", "cancel-all", "c", "later", "s", "prepare")
	if d.ended("later"); d.count("later", shunt.StatePrepare) != 0 {
		t.Error("not cancelled")
	}
}

// A bulk action that is stopped goes on where it was; one at a time runs on a channel.
func TestBulkStopsAndResumes(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.as("olga")
	d.kill("mail", 300, "no %d")
	// The first step waits in its filter until it was stopped.
	began, goOn := make(chan struct{}), make(chan struct{})
	looked := 0
	wait := shunt.Filter{Match: func(shunt.Entry) bool {
		if looked++; looked == 150 {
			close(began)
			<-goOn
		}
		return true
	}}
	err := d.d.bulks.begin(job{Verb: "delete-all", Channel: "mail", State: shunt.StateDead, By: "olga", Count: 300,
		Exact: true}, wait)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	b.post(409, "verb", "retry-all", "c", "mail", "yes", "1", "count", "300", "exact", "1")
	b.get(200, "dead?c=mail", "Delete all: runs", `value="stop-job"`)
	b.post(303, "verb", "stop-job", "c", "mail")
	close(goOn)
	j := d.ended("mail")
	if !j.Stopped || j.Changed >= 300 || !j.Resumable() {
		t.Fatalf("%+v", j)
	}
	if es := d.audits(); es[0].Verb != "delete-all" || es[0].Error != "stopped" || es[0].Count != j.Changed {
		t.Errorf("%+v", es[0])
	}
	b.post(409, "verb", "stop-job", "c", "mail")
	b.get(200, "dead?c=mail", `value="resume-job"`, "stopped after")
	b.confirmed(fmt.Sprintf("Delete %d dead letters of mail?", 300-j.Changed), "verb", "resume-job", "c", "mail")
	if j := d.ended("mail"); j.Changed != 300 || j.Stopped || d.count("mail", shunt.StateDead) != 0 {
		t.Errorf("%+v, and %d are left", j, d.count("mail", shunt.StateDead))
	}
	b.post(409, "verb", "resume-job", "c", "mail", "yes", "1")
}

// Close stops what runs, waits for it, and notes it.
func TestCloseStopsBulk(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.kill("mail", 200, "no")
	began := make(chan struct{})
	looked := 0
	wait := shunt.Filter{Match: func(shunt.Entry) bool {
		if looked++; looked == 1 {
			close(began)
			<-d.d.bulks.ctx.Done()
		}
		return true
	}}
	if err := d.d.bulks.begin(job{Verb: "delete-all", Channel: "mail", By: "olga"}, wait); err != nil {
		t.Fatal(err)
	}
	<-began
	if err := d.d.Close(); err != nil {
		t.Fatal(err)
	}
	if j := d.d.bulks.of("mail"); j.Running || !j.Stopped {
		t.Errorf("%+v", j)
	}
	if es := d.audits(); len(es) != 1 || es[0].Error != "stopped" {
		t.Errorf("%+v", es)
	}
}

// as a browser sends a text of a form: each of its lines ends with CR and LF.
var crlf = strings.NewReplacer("\r\n", "\r\n", "\n", "\r\n", "\r", "\r\n")

// The buttons of a group are for its messages also where the failure has several lines, or ends with a blank.
func TestGroupOfSeveralLines(t *testing.T) {
	t.Parallel()
	for _, failure := range []string{"exit status 1\nsecond line", "old mac\rline", "windows\r\nline", "it ends so: "} {
		d := newDesk(t)
		b := d.as("olga")
		d.kill("mail", 3, failure)
		d.kill("mail", 2, "other")
		like := regexp.MustCompile(`name="like" value="([^"]*)"><button name="verb" value="retry-all"`)
		m := like.FindStringSubmatch(b.get(200, "dead?c=mail"))
		if m == nil {
			t.Fatal("no group")
		}
		sent := crlf.Replace(html.UnescapeString(m[1]))
		_, page := b.post(200, "verb", "retry-all", "c", "mail", "like", sent)
		if !strings.Contains(page, "Retry 3 dead letters of mail?") {
			t.Errorf("%q: %s", failure, near(page, "question"))
		}
		v := url.Values{"yes": {"1"}}
		for _, m := range hiddenField.FindAllStringSubmatch(page, -1) {
			v.Add(m[1], crlf.Replace(html.UnescapeString(m[2])))
		}
		b.send(303, "act", v)
		if d.ended("mail"); d.count("mail", shunt.StatePrepare) != 3 || d.count("mail", shunt.StateDead) != 2 {
			t.Errorf("%q: %d were retried, and %d stay", failure, d.count("mail", shunt.StatePrepare),
				d.count("mail", shunt.StateDead))
		}
	}
}

// The audit has how many messages were changed, where others could not be.
func TestAuditOfSomeThatFail(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.as("olga")
	gone, there := d.enqueue("mail", "a"), d.enqueue("mail", "b")
	if _, err := d.q.Cancel(context.Background(), gone); err != nil {
		t.Fatal(err)
	}
	b.post(404, "verb", "cancel", "ref", gone.String(), "ref", there.String(), "yes", "1")
	if es := d.audits(); len(es) != 1 || es[0].Count != 1 || es[0].Error == "" {
		t.Errorf("%+v", es)
	}
}

// What is left of an action that was begun for at least so many is no number below zero.
func TestResumeBeyondCount(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.as("olga")
	d.kill("mail", 2, "no")
	d.d.bulks.last["mail"] = &job{Verb: "delete-all", Channel: "mail", State: shunt.StateDead, Count: 10, Changed: 25,
		Stopped: true}
	_, page := b.post(200, "verb", "resume-job", "c", "mail")
	if strings.Contains(page, "-15") {
		t.Error(near(page, "question"))
	}
}

// What died after the question was asked stays, also where a reply is lost.
func TestBulkBesideLostReply(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	d := deskOn(t, s, p.Addr())
	b := d.as("olga")
	d.kill("mail", 210, "no")
	lost := p.On(redistest.Command("ZREM", ".dead"), 1, redistest.CutAfter)
	b.post(303, "verb", "delete-all", "c", "mail", "yes", "1", "count", "150", "exact", "1")
	j := d.ended("mail")
	if left := d.count("mail", shunt.StateDead); left != 60 || lost.Struck() != 1 {
		t.Errorf("%d of the 60 that were not asked for are left: %+v", left, j)
	}
}

// A search tells nothing of a failure that is masked.
func TestMaskedLike(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(o *Options) {
		o.Mask = func(e shunt.Entry) shunt.Entry {
			e.Failure = "hidden"
			return e
		}
	})
	d.kill("mail", 1, "no card of ann")
	page := d.as("vera").get(200, "messages?c=mail&s=dead&like="+url.QueryEscape("no card of ann"))
	if !strings.Contains(page, "There is none here.") {
		t.Error("the masked failure is found")
	}
}

// A search for one message leads to its page, also under http.StripPrefix.
func TestFindUnderStripPrefix(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ref := d.enqueue("mail", "x")
	mux := http.NewServeMux()
	mux.Handle("/admin/queues/", http.StripPrefix("/admin/queues", d.d))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b := d.as("olga")
	b.at = server.URL + "/admin/queues/"
	r, err := http.NewRequest("GET", b.at+"messages?c=mail&find="+ref.Serial, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, _ := b.do(r)
	to, err := resp.Location()
	if err != nil || !strings.HasPrefix(to.Path, "/admin/queues/message") {
		t.Errorf("%d: it leads to %v, %v", resp.StatusCode, to, err)
	}
}

// What was cancelled before, and lies in its list still, is none of those that were counted: all these are cancelled.
func TestCancelAllBesideCancelled(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.as("olga")
	ctx := context.Background()
	for i := range 550 {
		r := d.enqueue("mail", "x", shunt.ID(fmt.Sprint(i)))
		if i < 300 {
			continue
		}
		if _, err := d.q.Cancel(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	b.confirmed("Cancel 300 messages of mail", "verb", "cancel-all", "c", "mail", "s", "prepare")
	j := d.ended("mail")
	if left := d.count("mail", shunt.StatePrepare); left != 0 || j.Changed != 300 {
		t.Errorf("%d of 300 are left: %+v", left, j)
	}
}
