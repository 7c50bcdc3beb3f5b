package daemon

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/internal/redistest"
)

// withBoards turns the dashboard on, with an operator and a viewer.
func withBoards(c *config.Config) {
	c.Dashboard.On = true
	c.Admin.Accounts = map[string]string{"ann": "anns-password", "bob": "bobs-password"}
	c.Admin.Viewers = []string{"bob"}
}

const (
	ann = "ann:anns-password"
	bob = "bob:bobs-password"
)

// Operators and viewers come in by the passwords of the admin listener, and nobody else, tokens included.
func TestDashboardAccess(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	r := serving(t, redistest.Start(t).URL(), withBoards)
	made, _ := r.send(t.Context(), "POST", r.admin+"/token/ns?description=d&role=admin&token="+userToken, "",
		"Basic", ann)
	if made.StatusCode != 201 {
		t.Fatal(made.Status)
	}
	for _, path := range []string{"", "/", "/default", "/default/", "/default/live", "/default/style.css", "/none/",
		"/a/b/c"} {
		at := r.admin + "/dashboard" + path
		for _, headers := range [][]string{
			nil, {"Basic", "ann:bobs-password"}, {"Basic", "ann:"}, {"Basic", "eve:x"}, {"X-Token", userToken},
			{"Authorization", "Bearer " + userToken}, {"Basic", ":" + userToken}, {"Basic", "ns:" + userToken},
		} {
			res, _ := r.get(at, headers...)
			if res.StatusCode != 401 || !strings.HasPrefix(res.Header.Get("WWW-Authenticate"), "Basic ") {
				t.Errorf("%s by %v: %s", path, headers, res.Status)
			}
		}
		if res, _ := r.get(at + "?token=" + userToken); res.StatusCode != 401 {
			t.Errorf("%s by a token in the query: %s", path, res.Status)
		}
		if res, _ := r.get(r.api+"/dashboard"+path, "Basic", ann); res.StatusCode != 404 {
			t.Errorf("%s on the API: %s", path, res.Status)
		}
	}
	for _, who := range []string{ann, bob} {
		for path, want := range map[string]string{
			"": "./dashboard/", "/": "./default/", "/default": "./default/", "/none/": "404", "/default/a/": "404",
			"//default/": "404", "/default/nothing": "404", "/default/": "200", "/default/style.css": "200",
		} {
			res, text := r.get(r.admin+"/dashboard"+path, "Basic", who)
			if got := res.Header.Get("Location"); got != want && !strings.HasPrefix(res.Status, want) {
				t.Errorf("%s by %s: %s %s %.200s", path, who, res.Status, got, text)
			}
		}
	}
	for _, do := range [][2]string{{"GET", "/limits"}, {"GET", "/token/ns"}, {"GET", "/v1/namespaces"},
		{"GET", "/push"}, {"POST", "/accesslog?status=disable"}, {"POST", "/token/ns?description=d"},
		{"POST", "/v1/ns/pull?queues=q"}} {
		if res, _ := r.send(t.Context(), do[0], r.admin+do[1], "", "Basic", bob); res.StatusCode != 401 {
			t.Errorf("a viewer may %v: %s", do, res.Status)
		}
	}
	r.stop()
	for _, secret := range []string{"-password", userToken} {
		if log := r.log.String(); strings.Contains(log, secret) {
			t.Error(log)
		}
	}
}

// Without accounts only this host comes in, by a name that no other site can take.
func TestDashboardLocal(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	r := serving(t, redistest.Start(t).URL(), func(c *config.Config) { c.Dashboard.On = true })
	for _, path := range []string{"/dashboard/", "/dashboard/default/", "/dashboard/default/style.css"} {
		if res, _ := r.get(r.admin + path); res.StatusCode != 200 && res.StatusCode != 302 {
			t.Errorf("%s: %s", path, res.Status)
		}
		for _, headers := range [][]string{{"Host", "evil.example"}, {"X-Forwarded-For", "192.0.2.1"},
			{"Host", "evil.example", "X-Token", userToken}} {
			if res, text := r.get(r.admin+path, headers...); res.StatusCode != 403 {
				t.Errorf("%s with %v: %s %s", path, headers, res.Status, text)
			}
		}
	}
	c := r.Config
	c.Admin.Allow = []string{"192.0.2.0/24"}
	if err := r.Reload(c); err != nil {
		t.Fatal(err)
	}
	if res, _ := r.get(r.admin + "/dashboard/default/"); res.StatusCode != 403 {
		t.Errorf("from a network that is not allowed: %s", res.Status)
	}
}

// What was published over HTTP is there, an operator acts on it, a viewer does not, and the audit knows who did. The
// log has none of it.
func TestDashboardActs(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	r := serving(t, b.URL(), withBoards, func(c *config.Config) { c.Admin.Open = true })
	r.want(201, "", "POST", r.api+"/v1/ns/q/messages?id=order-7&delay_ms=3600000&header.trace=0af7", "very-private")
	at := r.admin + "/dashboard/default/"
	if _, text := r.get(at, "Basic", bob); !strings.Contains(text, ">ns/q<") || !strings.Contains(text, "bob") ||
		strings.Contains(text, `"../"`) {
		t.Errorf("the overview has no channel: %s", text)
	}
	ref := shunt.Ref{Channel: "ns/q", ID: "order-7"}.String()
	page, text := r.get(at+"message?ref="+url.QueryEscape(ref), "Basic", bob)
	if !strings.Contains(text, "very-private") || !strings.Contains(text, "0af7") {
		t.Errorf("the message is not shown: %d %s", page.StatusCode, text)
	}
	cookie := ""
	for _, c := range page.Cookies() {
		if c.Name == "shunt_token" {
			cookie = c.Value
		}
	}
	form := url.Values{"verb": {"promote"}, "ref": {ref}, "token": {cookie}, "back": {"channel?c=ns/q"}}.Encode()
	act := func(who, form string) int {
		t.Helper()
		res, _ := r.send(t.Context(), "POST", at+"act", form, "Basic", who, "Cookie", "shunt_token="+cookie,
			"Sec-Fetch-Site", "same-origin")
		return res.StatusCode
	}
	if got := [3]int{act(bob, form), act(ann, "verb=promote"), act(ann, form)}; got != [3]int{403, 403, 303} {
		t.Errorf("a viewer, an operator without the token, and with it: %v", got)
	}
	q := &shunt.Queue{Pool: b.Pool(t), Quiet: true}
	t.Cleanup(func() { _ = q.Close() })
	if s, err := q.Status(t.Context(), shunt.Ref{Channel: "ns/q", ID: "order-7"}); err != nil ||
		s.State != shunt.StatePrepare {
		t.Errorf("%+v %v", s, err)
	}
	if _, text := r.get(at+"audit", "Basic", bob); !strings.Contains(text, ">ann<") {
		t.Error(text)
	}
	if _, text := r.get(at+"redis", "Basic", bob); !strings.Contains(text, "redis_version") {
		t.Error(text)
	}
	r.stop()
	log := r.log.String()
	for _, secret := range []string{"-password", "very-private", "order-7", cookie} {
		if cookie == "" || strings.Contains(log, secret) {
			t.Errorf("the log has %q: %s", secret, log)
		}
	}
	if !strings.Contains(log, "path=/dashboard/default/message") {
		t.Error(log)
	}
}

// Several pools have a page that lists them. What messages carry may be hidden.
func TestDashboardPools(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	r := serving(t, b.URL(), func(c *config.Config) {
		c.Dashboard = config.Dashboard{On: true}
		c.Pools["gone"] = config.Pool{Redis: "redis://127.0.0.1:1", MaxDead: 1, DeadFor: time.Hour}
		c.Admin.Open = true
	})
	r.want(201, "", "POST", r.api+"/v1/ns/q/messages?id=a&header.trace=0af7", "very-private")
	res, text := r.get(r.admin+"/dashboard/", "Accept-Language", "zh-CN,zh;q=0.9")
	if res.StatusCode != 200 || !strings.Contains(text, `<a href="./gone/">gone</a></th>`+"\n<td class=\"bad\">") ||
		!strings.Contains(text, `<a href="./default/">default</a></th>`+"\n<td class=\"good\">") ||
		!strings.Contains(text, "资源池") || res.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("%s %s", res.Status, text)
	}
	res, text = r.get(r.admin + "/dashboard/default/message?ref=" +
		url.QueryEscape(shunt.Ref{Channel: "ns/q", ID: "a"}.String()))
	if res.StatusCode != 200 || !strings.Contains(text, `<a href="../">`) || strings.Contains(text, "very-private") ||
		strings.Contains(text, "0af7") {
		t.Errorf("%s %s", res.Status, text)
	}
	if res, _ := r.get(r.admin + "/dashboard/gone/"); res.StatusCode != 502 {
		t.Errorf("a pool that is away: %s", res.Status)
	}
}

// A reload changes who may come in and whether anybody may, and has streams ask again.
func TestDashboardReload(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	r := serving(t, redistest.Start(t).URL(), withBoards)
	at := r.admin + "/dashboard/default/"
	lines, end := r.live(at+"live", "Basic", bob)
	defer end()
	c := r.Config
	c.Admin.Accounts, c.Admin.Viewers = map[string]string{"ann": "another"}, nil
	if err := r.Reload(c); err != nil {
		t.Fatal(err)
	}
	for nextEvent(lines) {
		continue
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	for who, want := range map[string]int{ann: 401, bob: 401, "ann:another": 200} {
		if res, _ := r.get(at, "Basic", who); res.StatusCode != want {
			t.Errorf("%s: %s", who, res.Status)
		}
	}
	c.Admin.Viewers = []string{"ann"}
	if err := r.Reload(c); err == nil || !strings.Contains(err.Error(), "want an operator, too") {
		t.Errorf("nobody may operate: %v", err)
	}
	c.Admin.Viewers, c.Dashboard.On = nil, false
	if err := r.Reload(c); err != nil {
		t.Fatal(err)
	}
	if res, _ := r.get(at, "Basic", "ann:another"); res.StatusCode != 404 {
		t.Errorf("it is off: %s", res.Status)
	}
	if log := r.log.String(); strings.Contains(log, "need a restart") {
		t.Error(log)
	}
	c.Dashboard = config.Dashboard{On: true}
	if err := r.Reload(c); err != nil {
		t.Fatal(err)
	}
	if res, _ := r.get(at, "Basic", "ann:another"); res.StatusCode != 200 {
		t.Errorf("it is on again: %s", res.Status)
	}
	if log := r.log.String(); !strings.Contains(log, "need a restart\" keys=dashboard") {
		t.Error(log)
	}
}

func TestDashboardURL(t *testing.T) {
	t.Parallel()
	for admin, want := range map[string]string{
		"127.0.0.1:7778": "http://127.0.0.1:7778/dashboard/", "[::1]:1": "http://[::1]:1/dashboard/",
		"[::]:7778": "http://localhost:7778/dashboard/", "0.0.0.0:1": "http://localhost:1/dashboard/", "/run/admin": "",
	} {
		c := config.Config{Dashboard: config.Dashboard{On: true}}
		if got := DashboardURL(&c, admin); got != want {
			t.Errorf("%s: %s", admin, got)
		}
		if c.Admin.Cert = "cert.pem"; DashboardURL(&c, admin) != strings.Replace(want, "http:", "https:", 1) {
			t.Errorf("%s: %s", admin, DashboardURL(&c, admin))
		}
		if c.Dashboard.On = false; DashboardURL(&c, admin) != "" {
			t.Errorf("%s though it is off", admin)
		}
	}
}
