package v1

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// All options, as parameters and as headers, are what a Go program would have given.
func TestPublishOptions(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	deadline := at.Add(time.Hour)
	query := url.Values{"id": {"a/b ü"}, "type": {"T"}, "at": {at.Format(time.RFC3339Nano)}, "expire_ms": {"7200000"},
		"deadline": {deadline.Format(time.RFC3339Nano)}, "retain_ms": {"1000"}, "unique_ms": {"2000"},
		"max_attempts": {"3"}, "header.k": {"v"}}
	r := s.want(201, "POST", "/q/messages?"+query.Encode(), "\x00\xff", "Content-Type", "image/png")
	m := r.json()
	if m["id"] != "a/b ü" || len(m["serial"].(string)) != 26 || r.header.Get("Location") == "" {
		t.Errorf("%v %v", m, r.header)
	}
	if other := s.send(s.server, "GET", r.header.Get("Location"), "", "X-Token", s.token); other.status != 200 ||
		other.json()["state"] != "delay" {
		t.Errorf("%d %s", other.status, other.body)
	}
	s.want(201, "POST", "/q/messages", "text", "Shunt-Id", "b%20%C3%BC", "Shunt-Type", "T", "Shunt-At",
		at.Format(time.RFC3339Nano), "Shunt-Expire-Ms", "7200000", "Shunt-Deadline", deadline.Format(time.RFC3339Nano),
		"Shunt-Retain-Ms", "1000", "Shunt-Unique-Ms", "2000", "Shunt-Max-Attempts", "3", "Shunt-Header-K", "v")
	for _, id := range []string{"a/b ü", "b ü"} {
		e, err := s.queue.Peek(context.Background(), shunt.ByID(s.ns+"/q", id))
		if err != nil {
			t.Fatal(err)
		}
		if e.State != shunt.StateDelay || !e.DueAt.Equal(at) || e.Type != "T" || e.Headers["k"] != "v" {
			t.Errorf("%s: %+v", id, e)
		}
		if id == "a/b ü" && (e.Headers["content-type"] != "image/png" || string(e.Payload) != "\x00\xff") {
			t.Errorf("%+v", e)
		}
		got := s.want(200, "GET", "/q/messages/"+url.PathEscape("id:"+id)+"/peek", "").json()
		if id == "a/b ü" && got["payload_base64"] != "AP8=" || id != "a/b ü" && got["payload"] != "text" {
			t.Errorf("%v", got)
		}
	}
}

// What each option may be, as a parameter, as a header and in a batch.
func TestPublishFaults(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	past, year := "2020-01-02T03:04:05Z", time.Now().AddDate(1, 0, 0).Format(time.RFC3339)
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		given map[string]string // by name; JSON as it stands, for the batch
		fault string            // empty: it is served
	}{
		{map[string]string{}, ""},
		{map[string]string{"id": `""`}, "id"},
		{map[string]string{"id": `"` + long + `"`}, "id"},
		{map[string]string{"id": `"` + long[1:] + `"`}, ""},
		{map[string]string{"id": `7`}, ""}, // as a parameter; a batch is below
		{map[string]string{"type": `""`}, "type"},
		{map[string]string{"type": `"` + long + `"`}, "type"},
		{map[string]string{"delay_ms": `-1`}, "delay_ms"},
		{map[string]string{"delay_ms": `1.5`}, "delay_ms"},
		{map[string]string{"delay_ms": `01`}, "delay_ms"},
		{map[string]string{"delay_ms": `1e3`}, "delay_ms"},
		{map[string]string{"delay_ms": `3153600000001`}, "delay_ms"},
		{map[string]string{"delay_ms": `3153600000000`}, ""},
		{map[string]string{"delay_ms": `99999999999999999999`}, "delay_ms"},
		{map[string]string{"delay_ms": `null`}, "delay_ms"},
		{map[string]string{"delay_ms": `true`}, "delay_ms"},
		{map[string]string{"delay_ms": `0`}, ""},
		{map[string]string{"at": `"tomorrow"`}, "at"},
		{map[string]string{"at": `""`}, "at"},
		{map[string]string{"at": `"1969-12-31T23:59:59Z"`}, "at"},
		{map[string]string{"at": `"9999-12-31T23:59:59Z"`}, ""},
		{map[string]string{"at": `"` + past + `"`}, ""},
		{map[string]string{"at": `"` + past + `"`, "delay_ms": `1`}, "at"},
		{map[string]string{"deadline": `"` + past + `"`}, "deadline"},
		{map[string]string{"deadline": `"` + year + `"`, "delay_ms": `3153600000`}, ""},
		{map[string]string{"deadline": `"` + year + `"`, "delay_ms": `3153600000000`}, "deadline"},
		{map[string]string{"deadline": `"` + year + `"`, "at": `"` + year + `"`}, "deadline"},
		{map[string]string{"expire_ms": `0`}, "expire_ms"},
		{map[string]string{"expire_ms": `5`, "delay_ms": `5`}, "expire_ms"},
		{map[string]string{"expire_ms": `5`, "at": `"` + year + `"`}, "expire_ms"},
		{map[string]string{"retain_ms": `5`}, "retain_ms"},
		{map[string]string{"retain_ms": `0`, "id": `"r"`}, "retain_ms"},
		{map[string]string{"unique_ms": `5`}, "unique_ms"},
		{map[string]string{"max_attempts": `0`}, "max_attempts"},
		{map[string]string{"max_attempts": `256`}, "max_attempts"},
		{map[string]string{"max_attempts": `255`}, ""},
		{map[string]string{"unknown": `"1"`}, "unknown"},
		{map[string]string{"payload_base64": `"!"`}, "payload_base64"},
	} {
		query, fields, headers := make(url.Values), []string(nil), []string{}
		for name, value := range c.given {
			query.Set(name, strings.Trim(value, `"`))
			headers = append(headers, "Shunt-"+strings.ReplaceAll(name, "_", "-"), strings.Trim(value, `"`))
			fields = append(fields, fmt.Sprintf("%q:%s", name, value))
		}
		requests := map[string]func() reply{
			"query": func() reply { return s.do("POST", "/q/messages?"+query.Encode(), "x") },
			"batch": func() reply { return s.json("POST", "/q/messages:batch", "[{"+strings.Join(fields, ",")+"}]") },
		}
		if c.given["id"] != `""` && c.given["type"] != `""` && c.given["at"] != `""` { // the test's client sends none
			requests["header"] = func() reply { return s.do("POST", "/q/messages", "x", headers...) }
		}
		for how, send := range requests {
			fault := c.fault
			if how == "batch" && c.given["id"] == "7" {
				fault = "id"
			}
			if how != "batch" && c.given["payload_base64"] != "" || how == "batch" && c.given["delay_ms"] == "01" {
				continue
			}
			r := send()
			switch {
			case fault == "" && r.status != 201 && r.status != 409:
				t.Errorf("%s of %v: %d %s", how, c.given, r.status, r.body)
			case fault == "" && r.status == 201 && len(c.given["id"]) > 0:
				s.wantJSON(200, "POST", "/q/purge", `{"states":["prepare","delay"]}`)
			case fault != "" && (!r.is("invalid-request") || !strings.Contains(strings.ToLower(r.body),
				strings.ReplaceAll(fault, "_",
					map[string]string{"header": "-"}[how]+map[bool]string{true: "_"}[how != "header"]))):
				t.Errorf("%s of %v: %d %s", how, c.given, r.status, r.body)
			}
		}
	}
}

// All faults of a request are told at once.
func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	r := s.want(400, "POST", "/q/messages?delay_ms=x&max_attempts=0&a=b&id=1&id=2", "", "Shunt-Retain-Ms", "-",
		"Shunt-Id", "%zz")
	faults := r.json()["faults"].([]any)
	var names []string
	for _, f := range faults {
		m := f.(map[string]any)
		names = append(names, m["in"].(string)+" "+m["name"].(string))
	}
	for _, want := range []string{"query delay_ms", "query max_attempts", "query a", "query id",
		"header Shunt-Retain-Ms",
		"header Shunt-Id"} {
		if !strings.Contains(strings.Join(names, ",")+",", want+",") {
			t.Errorf("%v: no %s", names, want)
		}
	}
	r = s.wantJSON(400, "POST", "/q/messages:batch",
		`[{"id":1},{"delay_ms":1,"at":"x","payload":"a","payload_base64":"b","id":"x","id":"y"},5,`+
			`{"headers":{"a":1,"":"x"}}]`)
	for _, want := range []string{"/0/id", "/1/at", "/1/payload_base64", "/1/id", `"/2"`, "/3/headers/a",
		"/3/headers"} {
		if !strings.Contains(r.body, want) {
			t.Errorf("no %s in %s", want, r.body)
		}
	}
	if n := s.count("q", shunt.StatePrepare); n != 0 {
		t.Errorf("%d were published", n)
	}
}

// A batch says what became of each.
func TestBatch(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	r := s.wantJSON(201, "POST", "/q/messages:batch",
		`[{"id":"a","payload":"x"},{"payload_base64":"AP8=","headers":{"k":"v"}},{"delay_ms":60000}]`)
	all := r.json()["messages"].([]any)
	if len(all) != 3 || all[0].(map[string]any)["id"] != "a" || all[1].(map[string]any)["serial"] == "" {
		t.Errorf("%v", all)
	}
	r = s.wantJSON(207, "POST", "/q/messages:batch", `[{"id":"b"},{"id":"a"}]`)
	all = r.json()["messages"].([]any)
	if p := all[1].(map[string]any)["problem"].(map[string]any); p["type"] != problemPrefix+"duplicate" ||
		p["existing"].(map[string]any)["state"] != "prepare" || all[0].(map[string]any)["problem"] != nil {
		t.Errorf("%v", all)
	}
	if s.count("q", shunt.StatePrepare) != 3 || s.count("q", shunt.StateDelay) != 1 {
		t.Error("not what was published")
	}
	for body, fault := range map[string]string{"": "", "null": "", "{}": "", "[]": "0 items", "[1": "not JSON",
		"[1]]": "not JSON", "[\"\xff\"]": "not UTF-8", strings.Repeat("[", 200): "deeper",
		"[{}" + strings.Repeat(",{}", 100) + "]": "101 items"} {
		if r := s.json("POST", "/q/messages:batch", body); r.status != 400 || !strings.Contains(r.body, fault) {
			t.Errorf("%.20q: %d %s", body, r.status, r.body)
		}
	}
	if r := s.do("POST", "/q/messages:batch", "[{}]", "Content-Type", "text/json"); !r.is("unsupported-media-type") {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("POST", "/q/messages:batch", "[{}]", "Content-Type",
		"application/json; charset=latin1"); r.status != 415 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A payload may be as large as limits say, and a batch of large ones, too.
func TestPayloadSizes(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	mib := strings.Repeat("a", 1<<20)
	s.want(201, "POST", "/q/messages", mib)
	if r := s.do("POST", "/q/messages", mib+"a"); !r.is("too-large") || r.status != 413 {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.wantJSON(201, "POST", "/q/messages:batch", `[{"payload":"`+mib+`"},{"payload_base64":"`+
		base64.StdEncoding.EncodeToString([]byte(mib))+`"}]`)
	s.wantJSON(400, "POST", "/q/messages:batch", `[{"payload":"a`+mib+`"}]`)
	s.want(201, "POST", "/q/messages", "")
}

// A duplicate is 409 with the status of the other one.
func TestDuplicate(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	first := s.want(201, "POST", "/q/messages?id=a&delay_ms=60000", "x").json()
	r := s.want(409, "POST", "/q/messages?id=a", "x")
	if e := r.json()["existing"].(map[string]any); !r.is("duplicate") || e["serial"] != first["serial"] ||
		e["state"] != "delay" {
		t.Errorf("%s", r.body)
	}
}
