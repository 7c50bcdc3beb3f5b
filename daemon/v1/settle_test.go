package v1

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/internal/redistest"
)

// one publishes a message and pulls it.
func (s *site) one(query string) (receipt string) {
	s.t.Helper()
	s.want(201, "POST", "/q/messages?"+query, "x")
	return s.pull(1, "queues=q&lease_ms=60000")[0]["receipt"].(string)
}

// Each verdict does what it says, and the second one is too late.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	body := func(receipt, more string) string { return fmt.Sprintf(`{"receipt":%q%s}`, receipt, more) }
	for _, c := range []struct {
		path, more string
		state      shunt.State // in which the message is then; "": gone
	}{
		{"/ack", "", ""},
		{"/ack", `,"result":"r"`, ""},
		{"/ack", `,"result_base64":"AP8=","then":[{"queue":"after","payload":"p","delay_ms":5}]`, ""},
		{"/fail", "", shunt.StateDelay},
		{"/fail", `,"reason":"why","after_ms":60000`, shunt.StateDelay},
		{"/fail", `,"snooze_ms":60000`, shunt.StateDelay},
		{"/fail", `,"reject":true,"reason":"never"`, shunt.StateDead},
		{"/release", "", shunt.StatePrepare},
	} {
		receipt := s.one("id=a&retain_ms=60000")
		s.wantJSON(204, "POST", "/extend", body(receipt, `,"lease_ms":120000`))
		s.wantJSON(204, "POST", c.path, body(receipt, c.more))
		got := s.do("GET", "/q/messages/id:a", "").json()
		if c.state != "" && c.state != shunt.StateDead && got["state"] != string(c.state) {
			t.Errorf("%s %s: %v", c.path, c.more, got)
		}
		if strings.Contains(c.more, "result") {
			o := got["outcome"].(map[string]any)
			if o["kind"] != "acked" || o["result"] == nil && o["result_base64"] != "AP8=" {
				t.Errorf("%v", got)
			}
		}
		for _, late := range []string{"/ack", "/fail", "/release", "/extend"} {
			more := map[string]string{"/extend": `,"lease_ms":1000`}[late]
			if r := s.json("POST", late, body(receipt, more)); r.status != 410 || !r.is("lease-lost") {
				t.Errorf("a late %s after %s: %d %s", late, c.path, r.status, r.body)
			}
		}
		s.wantJSON(200, "POST", "/q/purge", `{"states":["prepare","delay","dead","done"]}`)
	}
	if m := s.pull(1, "queues=after&wait_ms=5000")[0]; m["payload"] != "p" {
		t.Errorf("%v", m)
	}
}

// A result needs an id, by which it would be found; nothing is settled without. What follows needs none.
func TestResultWithoutID(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	receipt := s.one("")
	if r := s.json("POST", "/ack", fmt.Sprintf(`{"receipt":%q,"result":"x"}`, receipt)); !r.is("no-id") {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.wantJSON(204, "POST", "/ack", fmt.Sprintf(`{"receipt":%q,"then":[{"queue":"next"}]}`, receipt))
}

// The holder of a cancelled message learns it when it extends.
func TestExtendCancelled(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	receipt := s.one("id=a")
	s.want(200, "POST", "/q/messages/id:a/cancel", "")
	if r := s.json("POST", "/extend", fmt.Sprintf(`{"receipt":%q,"lease_ms":1000}`, receipt)); r.status != 409 ||
		!r.is("cancelled") {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("GET", "/q/messages/id:a", "").json(); r["cancelled"] != true || r["state"] != "leased" {
		t.Errorf("%v", r)
	}
	s.wantJSON(204, "POST", "/fail", fmt.Sprintf(`{"receipt":%q}`, receipt))
	s.want(404, "GET", "/q/messages/id:a", "")
}

// A batch says what became of each, and one that fails harms no other.
func TestSettleBatch(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	for i := range 6 {
		s.want(201, "POST", fmt.Sprintf("/q/messages?id=m%d&retain_ms=60000", i), "x")
	}
	var rs []string
	for _, m := range s.pull(6, "queues=q&max=6&lease_ms=60000") {
		rs = append(rs, m["receipt"].(string))
	}
	s.wantJSON(204, "POST", "/ack", fmt.Sprintf(`{"receipt":%q}`, rs[5])) // late below
	r := s.wantJSON(200, "POST", "/settle", fmt.Sprintf(`[{"verdict":"ack","receipt":%q},
		{"verdict":"ack","receipt":%q,"result":"r"},{"verdict":"fail","receipt":%q,"reject":true},
		{"verdict":"release","receipt":%q},{"verdict":"extend","receipt":%q,"lease_ms":90000},
		{"verdict":"ack","receipt":%q}]`, rs[0], rs[1], rs[2], rs[3], rs[4], rs[5]))
	var out struct{ Outcomes []settledJSON }
	if err := json.Unmarshal([]byte(r.body), &out); err != nil {
		t.Fatal(err)
	}
	for i, o := range out.Outcomes {
		if o.OK != (i != 5) || string(o.Receipt) != rs[i] || (o.Problem == nil) != (i != 5) {
			t.Errorf("%d: %+v", i, o)
		}
	}
	if p := out.Outcomes[5].Problem; p.Type != problemPrefix+"lease-lost" || p.Status != 410 {
		t.Errorf("%+v", p)
	}
	for state, n := range map[shunt.State]int{shunt.StatePrepare: 1, shunt.StateLeased: 1, shunt.StateDead: 1} {
		if got := s.count("q", state); got != n {
			t.Errorf("%d are %s, want %d", got, state, n)
		}
	}
}

func TestSettleFaults(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	r := s.one("")
	elsewhere := strings.Replace(r, s.ns, s.ns+"2", 1)
	for _, c := range []struct{ path, body, fault string }{
		{"/ack", ``, "missing"},
		{"/ack", `{}`, "missing"},
		{"/ack", `{"receipt":7}`, "want text"},
		{"/ack", `{"receipt":"` + strings.Repeat("x", 100000) + `"}`, "no receipt"},
		{"/ack", `{"receipt":"a.b.c"}`, "no receipt"},
		{"/ack", `{"receipt":"` + elsewhere + `"}`, "another namespace"},
		{"/ack", `{"receipt":"` + r + `","reason":"x"}`, "/reason"},
		{"/ack", `{"receipt":"` + r + `","result":"a","result_base64":"b"}`, "result_base64"},
		{"/ack", `{"receipt":"` + r + `","result":"` + strings.Repeat("x", 1<<20+1) + `"}`, "1048577 bytes"},
		{"/ack", `{"receipt":"` + r + `","then":{}}`, "array"},
		{"/ack", `{"receipt":"` + r + `","then":[{}]}`, "/then/0/queue"},
		{"/ack", `{"receipt":"` + r + `","then":[{"queue":"a/b"}]}`, "/then/0/queue"},
		{"/fail", `{"receipt":"` + r + `","reason":""}`, "reason"},
		{"/fail", `{"receipt":"` + r + `","after_ms":1,"reject":true}`, "one at most"},
		{"/fail", `{"receipt":"` + r + `","after_ms":1,"snooze_ms":100}`, "one at most"},
		{"/fail", `{"receipt":"` + r + `","snooze_ms":99}`, "snooze_ms"},
		{"/fail", `{"receipt":"` + r + `","after_ms":-1}`, "after_ms"},
		{"/fail", `{"receipt":"` + r + `","reject":1}`, "true or false"},
		{"/extend", `{"receipt":"` + r + `"}`, "lease_ms"},
		{"/extend", `{"receipt":"` + r + `","lease_ms":604800001}`, "lease_ms"},
		{"/settle", `[]`, "0 items"},
		{"/settle", `[{"receipt":"` + r + `"}]`, "verdict"},
		{"/settle", `[{"receipt":"` + r + `","verdict":"nack"}]`, "verdict"},
		{"/settle", `[{"receipt":"` + r + `","verdict":"ack"},{"receipt":"` + r + `","verdict":"ack"}]`, "twice"},
		{"/settle", `[{"receipt":"` + r + `","verdict":"ack"},5]`, "/1"},
	} {
		if got := s.json("POST", c.path, c.body); !got.is("invalid-request") || !strings.Contains(got.body, c.fault) {
			t.Errorf("%s %.200s: %d %.300s", c.path, c.body, got.status, got.body)
		}
	}
	if n := s.count("q", shunt.StateLeased); n != 1 {
		t.Error("something was settled all the same")
	}
	// what follows is a publish
	token := s.mint(access.Consume)
	then := `{"receipt":"` + r + `","verdict":"ack","then":[{"queue":"q"}]}`
	if got := s.json("POST", "/settle", "["+then+"]", "X-Token", token); !got.is("forbidden") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := s.json("POST", "/ack", strings.Replace(then, `"verdict":"ack",`, "", 1), "X-Token",
		token); got.status != 403 {
		t.Errorf("%d %s", got.status, got.body)
	}
	s.wantJSON(204, "POST", "/ack", `{"receipt":"`+r+`"}`, "X-Token", token)
}
