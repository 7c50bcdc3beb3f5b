package dashboard

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/shuntmq/shunt"
)

func TestBasicAuthAndBearer(t *testing.T) {
	t.Parallel()
	basic := BasicAuth(map[string]Login{"ann": {"secret", Operator}, "bob": {"other", Viewer}, "eve": {"", Operator}})
	bearer := Bearer(map[string]User{"t1": {"ci", Viewer}, "": {"nobody", Operator}})
	for _, c := range []struct {
		auth   func(*http.Request) (User, error)
		header string
		name   string
	}{
		{basic, basicHeader("ann", "secret"), "ann"},
		{basic, basicHeader("bob", "other"), "bob"},
		{basic, basicHeader("bob", "secret"), ""},
		{basic, basicHeader("ann", ""), ""},
		{basic, basicHeader("eve", ""), ""},
		{basic, basicHeader("anns", "ecret"), ""},
		{basic, "", ""},
		{basic, "Bearer t1", ""},
		{bearer, "Bearer t1", "ci"},
		{bearer, "bearer t1", "ci"},
		{bearer, "Bearer t2", ""},
		{bearer, "Bearer ", ""},
		{bearer, "", ""},
		{bearer, "Basic t1", ""},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		u, err := c.auth(r)
		var ask Challenge
		if u.Name != c.name || (c.name == "") != errors.As(err, &ask) {
			t.Errorf("%q: %v %v, want %q", c.header, u, err, c.name)
		}
	}
}

func basicHeader(name, password string) string {
	r := httptest.NewRequest("GET", "/", nil)
	r.SetBasicAuth(name, password)
	return r.Header.Get("Authorization")
}

// Without Authenticate only this host comes in, and only by a name that no other site can take.
func TestLocalOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, host, header string
		ok                 bool
	}{
		{"127.0.0.1:5", "localhost:8080", "", true},
		{"127.0.0.1:5", "127.0.0.1", "", true},
		{"127.9.9.9:5", "LOCALHOST", "", true},
		{"[::1]:5", "[::1]:8080", "", true},
		{"[::1]:5", "[::1]", "", true},
		{"[::ffff:127.0.0.1]:5", "localhost", "", true},
		{"127.0.0.1:5", "evil.example:8080", "", false},
		{"127.0.0.1:5", "localhost.evil.example", "", false},
		{"127.0.0.1:5", "127.0.0.1.evil.example", "", false},
		{"127.0.0.1:5", "", "", false},
		{"192.0.2.1:5", "localhost", "", false},
		{"10.0.0.1:5", "127.0.0.1", "", false},
		{"@", "localhost", "", false},
		{"127.0.0.1:5", "localhost", "X-Forwarded-For", false},
		{"127.0.0.1:5", "localhost", "Forwarded", false},
		{"127.0.0.1:5", "localhost", "Via", false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if r.RemoteAddr, r.Host = c.from, c.host; c.header != "" {
			r.Header.Set(c.header, "192.0.2.1")
		}
		if u, err := LocalOnly(r); (err == nil) != c.ok || c.ok && u.Role != Operator {
			t.Errorf("from %s for %q with %q: %v %v", c.from, c.host, c.header, u, err)
		}
	}
}

// Nobody sees anything without credentials: no page, no asset, no stream, and no action is done.
func TestNoCredentials(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.enqueue("mail", "secret payload")
	nobody := d.as("")
	for name := range gets {
		if body := nobody.get(401, name+"?c=mail"); strings.Contains(body, "mail") || len(body) > 100 {
			t.Errorf("%s: %s", name, body)
		}
	}
	for name := range assets {
		nobody.get(401, name)
	}
	nobody.get(401, "nothing")
	for name := range posts {
		nobody.send(401, name, url.Values{"verb": {"purge"}, "c": {"mail"}, "s": {"prepare"}, "yes": {"1"}})
	}
	if d.count("mail", shunt.StatePrepare) != 1 {
		t.Error("it was changed")
	}
}

// What the host's own func says is answered as documented.
func TestAuthenticateErrors(t *testing.T) {
	t.Parallel()
	var user User
	var says error
	d := newDesk(t, func(o *Options) { o.Authenticate = func(*http.Request) (User, error) { return user, says } })
	b := d.as("")
	for _, c := range []struct {
		user   User
		err    error
		status int
	}{
		{User{"ann", Viewer}, nil, 200}, {User{"ann", Operator}, nil, 200},
		{User{"", Operator}, nil, 403}, {User{"ann", "root"}, nil, 403},
		{User{strings.Repeat("a", 256), Viewer}, nil, 403},
		{User{}, errors.New("no session"), 401}, {User{}, ErrForbidden, 403}, {User{}, Challenge("X"), 401},
	} {
		user, says = c.user, c.err
		b.get(c.status, "settings")
	}
}

// A form of another site, or without the token of this browser, changes nothing.
func TestForged(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ref := d.enqueue("mail", "x", shunt.In(1<<40)).String()
	b := d.as("olga")
	token := b.token()
	for name, c := range map[string]struct {
		token  string
		header [2]string
		status int
	}{
		"no token":       {"", [2]string{}, 403},
		"another token":  {strings.Repeat("A", 26), [2]string{}, 403},
		"cross-site":     {token, [2]string{"Sec-Fetch-Site", "cross-site"}, 403},
		"same-site":      {token, [2]string{"Sec-Fetch-Site", "same-site"}, 403},
		"another origin": {token, [2]string{"Origin", "https://evil.example"}, 403},
		"null origin":    {token, [2]string{"Origin", "null"}, 403},
		"all is well":    {token, [2]string{"Sec-Fetch-Site", "same-origin"}, 303},
	} {
		v := url.Values{"verb": {"promote"}, "ref": {ref}, "token": {c.token}}
		r, _ := http.NewRequest("POST", d.at+"act", strings.NewReader(v.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if c.header[0] != "" {
			r.Header.Set(c.header[0], c.header[1])
		}
		if c.status == 303 {
			continue
		}
		if resp, body := b.do(r); resp.StatusCode != c.status {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	// The token in the query is none, and neither is one without its cookie.
	b.send(403, "act?token="+token, url.Values{"verb": {"promote"}, "ref": {ref}})
	d.as("olga").send(403, "act", url.Values{"verb": {"promote"}, "ref": {ref}, "token": {token}})
	b.get(404, "act?verb=promote&ref="+url.QueryEscape(ref)+"&token="+token)
	if d.count("mail", shunt.StateDelay) != 1 || len(d.audits()) != 0 {
		t.Error("it was changed")
	}
	b.send(303, "act", url.Values{"verb": {"promote"}, "ref": {ref}, "token": {token}})
	if d.count("mail", shunt.StateDelay) != 0 {
		t.Error("it was not changed")
	}
}
