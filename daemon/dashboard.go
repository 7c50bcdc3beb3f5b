package daemon

import (
	"context"
	"errors"
	"html/template"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/dashboard"
)

// boardsAt is where the admin listener has the dashboards: a page that lists them, and under it one for each pool.
const boardsAt = "/dashboard/"

// boards are the dashboards of all pools.
type boards struct {
	pools   map[string]*pool
	of      map[string]*dashboard.Dashboard // by pool
	names   []string                        // of the pools, sorted
	started string                          // marks the style sheet, which browsers keep

	rules atomic.Pointer[boardRules]
}

// boardRules are what a reload changes.
type boardRules struct {
	on       bool
	user     func(*http.Request) (dashboard.User, error)
	bodyTime time.Duration // for the body of a request
	// replaced ends with these rules, and ends live streams. They come back at once, and are asked who they are.
	replaced context.Context
	replace  context.CancelFunc
}

func newBoards(pools map[string]*pool, c *config.Config, log *slog.Logger) *boards {
	b := &boards{pools: pools, of: make(map[string]*dashboard.Dashboard), names: slices.Sorted(maps.Keys(pools)),
		started: strconv.FormatInt(time.Now().Unix(), 36)}
	for name, p := range pools {
		o := dashboard.Options{Authenticate: b.user, Pool: p.own, Title: "shuntd", Log: log.With("pool", name)}
		if len(pools) > 1 {
			o.Title, o.Above = name, "../"
		}
		if !c.Dashboard.Payloads {
			o.Mask = withoutPayload
		}
		b.of[name] = dashboard.Handler(p.queue, o)
	}
	b.set(c)
	return b
}

// user says who asks, by the rules of now.
func (b *boards) user(r *http.Request) (dashboard.User, error) { return b.rules.Load().user(r) }

// withoutPayload hides what a message carries.
func withoutPayload(e shunt.Entry) shunt.Entry {
	e.Payload, e.Headers, e.Outcome.Result = nil, nil, nil
	return e
}

// set takes in other accounts, and whether the dashboards are on.
func (b *boards) set(c *config.Config) {
	rules := &boardRules{on: c.Dashboard.On, user: dashboard.LocalOnly, bodyTime: c.Limits.BodyTimeout}
	if len(c.Admin.Accounts) > 0 {
		logins := make(map[string]dashboard.Login, len(c.Admin.Accounts))
		for user, password := range c.Admin.Accounts {
			role := dashboard.Operator
			if slices.Contains(c.Admin.Viewers, user) {
				role = dashboard.Viewer
			}
			logins[user] = dashboard.Login{Password: password, Role: role}
		}
		rules.user = dashboard.BasicAuth(logins)
	}
	rules.replaced, rules.replace = context.WithCancel(context.Background())
	if old := b.rules.Swap(rules); old != nil {
		old.replace()
	}
}

// close ends streams and bulk actions, and waits for these. What comes later gets 503.
func (b *boards) close() error {
	var all errgroup.Group
	for _, d := range b.of {
		all.Go(d.Close)
	}
	return all.Wait()
}

// before serves the dashboards while they are on, and leaves all else to a handler.
func (b *boards) before(rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ours := strings.CutPrefix(r.URL.Path+"/", boardsAt)
		rules := b.rules.Load()
		if !ours || !rules.on {
			rest.ServeHTTP(w, r)
			return
		}
		b.serve(w, r, rules, strings.TrimSuffix(path, "/"))
	})
}

// serve answers a request for what is left of its path.
func (b *boards) serve(w http.ResponseWriter, r *http.Request, rules *boardRules, path string) {
	if r.Body != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(b.rules.Load().bodyTime))
	}
	name, page, inside := strings.Cut(path, "/")
	board := b.of[name]
	switch {
	case board != nil && inside && !strings.Contains(page, "/"):
		if page == "live" { // a page that is asked for goes on
			ctx, end := context.WithCancel(r.Context())
			defer end()
			defer context.AfterFunc(rules.replaced, end)()
			r = r.WithContext(ctx)
		}
		board.ServeHTTP(w, r)
	case refused(w, r, rules):
	case r.Method != http.MethodGet && r.Method != http.MethodHead || path != "" && (board == nil || inside):
		http.Error(w, "shuntd: there is no such page: want "+boardsAt+"POOL/", http.StatusNotFound)
	case board != nil:
		found(w, name)
	case !strings.HasSuffix(r.URL.Path, "/"):
		found(w, strings.Trim(boardsAt, "/"))
	case len(b.names) == 1:
		found(w, b.names[0])
	default:
		b.list(w, r)
	}
}

// found sends a browser to a directory beside the page that it has asked for, wherever a proxy may have put that.
func found(w http.ResponseWriter, dir string) {
	w.Header().Set("Location", "./"+dir+"/")
	w.WriteHeader(http.StatusFound)
}

// refused says whether somebody may not come in, and has answered then.
func refused(w http.ResponseWriter, r *http.Request, rules *boardRules) bool {
	_, err := rules.user(r)
	var ask dashboard.Challenge
	switch {
	case err == nil:
		return false
	case errors.As(err, &ask):
		w.Header().Set("WWW-Authenticate", string(ask))
		http.Error(w, "shuntd: log in", http.StatusUnauthorized)
	default:
		http.Error(w, "shuntd: while admin.accounts is empty only this host may see it, at localhost",
			http.StatusForbidden)
	}
	return true
}

var startPage = template.Must(template.New("").Parse(`<!doctype html>
<html lang="{{if .Chinese}}zh-Hans{{else}}en{{end}}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>shuntd</title>
<link rel="stylesheet" href="./{{(index .Pools 0).Name}}/style.css?v={{.Started}}">
</head>
<body>
<header><a class="brand" href="./">shuntd</a></header>
<main>
<h1>{{if .Chinese}}资源池{{else}}Pools{{end}}</h1>
<div class="scroll"><table>
<tbody>{{range .Pools}}
<tr><th scope="row"><a href="./{{.Name}}/">{{.Name}}</a></th>
{{if .Up}}<td class="good">{{if $.Chinese}}Redis 正常{{else}}Redis answers{{end}}</td>
{{else}}<td class="bad">{{if $.Chinese}}Redis 无响应{{else}}Redis does not answer{{end}}</td>{{end}}</tr>
{{end}}</tbody></table></div>
</main>
</body>
</html>
`))

// list is the page of all pools.
func (b *boards) list(w http.ResponseWriter, r *http.Request) {
	type row struct {
		Name string
		Up   bool
	}
	rows := make([]row, len(b.names))
	var all errgroup.Group
	for i, name := range b.names {
		// Others get the answer of this ping, too.
		all.Go(func() error {
			rows[i] = row{name, b.pools[name].ping(context.WithoutCancel(r.Context())) == nil}
			return nil
		})
	}
	_ = all.Wait()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	// An error is the browser's, which has gone.
	_ = startPage.Execute(w, struct {
		Chinese bool
		Started string
		Pools   []row
	}{strings.HasPrefix(strings.ToLower(r.Header.Get("Accept-Language")), "zh"), b.started, rows})
}

// operators are the accounts that may use the admin listener's routes.
func operators(c *config.Config) map[string]string {
	all := maps.Clone(c.Admin.Accounts)
	maps.DeleteFunc(all, func(user, _ string) bool { return slices.Contains(c.Admin.Viewers, user) })
	return all
}

// DashboardURL is where a browser of this host finds the dashboards when the admin listener has an address; empty: they
// are off, or it is no TCP.
func DashboardURL(c *config.Config, admin string) string {
	host, port, err := net.SplitHostPort(admin)
	if err != nil || !c.Dashboard.On {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http://"
	if c.Admin.Cert != "" {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port) + boardsAt
}
