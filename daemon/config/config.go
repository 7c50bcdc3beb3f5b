// Package config has the configuration of shuntd: one TOML file, and each of its keys as a flag and as an environment
// variable. All mistakes are found at once.
//
// A key is named by its path, as in limits.max_wait. Its flag is -limits.max_wait, and its variable is
// SHUNTD_LIMITS_MAX_WAIT. A flag wins over a variable, that over the file, and the file over the default. Of a list,
// items are separated by commas there.
package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/shuntmq/shunt"
)

// Config is all of it. Default gives one to begin with; fields that it leaves empty are empty by default.
type Config struct {
	PIDFile string        `key:"pid_file" help:"file that gets the process id; the end removes it if it still has that"`
	Grace   time.Duration `key:"grace" default:"30s" help:"how long the end waits for requests: 1s at least, to 1h"`

	API       Listener        `key:"api"`
	Admin     Admin           `key:"admin"`
	Dashboard Dashboard       `key:"dashboard"`
	GMQ       Adapter         `key:"gmq"`
	Delayq    Adapter         `key:"delayq"`
	Log       Log             `key:"log"`
	Limits    Limits          `key:"limits"`
	Defaults  Defaults        `key:"defaults"`
	Pools     map[string]Pool `key:"pools"`
	Push      Push            `key:"push"`
	Checks    string          `key:"checks" default:"warn" help:"what a missed start-up check does: warn, fail or off"`
}

// Listener is where a server listens, and for whom.
type Listener struct {
	Listen string   `key:"listen" help:"host:port, unix:/path, or systemd:NAME for a socket of systemd"`
	Allow  []string `key:"allow" help:"addresses and CIDRs that may connect; empty: all"`
	Cert   string   `key:"tls_cert" help:"PEM file of the certificate and its chain; read anew at SIGHUP"`
	Key    string   `key:"tls_key" help:"PEM file of its key"`
}

// Admin is the listener for operators.
type Admin struct {
	Listener
	Accounts map[string]string `key:"accounts" secret:"true" help:"password of basic authentication, by user"`
	Viewers  []string          `key:"viewers" help:"of these users: who may only look at the dashboard"`
	Pool     string            `key:"pool" default:"default" help:"pool whose Redis keeps tokens and limits"`
	Open     bool              `key:"open" help:"ask for no tokens: for development"`
}

// Adapter is the listener of a protocol that has no tokens. Whoever reaches it may use all channels of its prefix.
type Adapter struct {
	Listen string   `key:"listen" help:"as of api; empty: off; without tokens, so beyond loopback it wants allow"`
	Allow  []string `key:"allow" help:"addresses and CIDRs that may connect; empty: all that reach it"`
	Pool   string   `key:"pool" default:"default" help:"pool whose channels it serves"`
	Prefix string   `key:"prefix" help:"of its channels, such as \"gmq/\"; empty: a topic is a channel"`
}

// On says whether it is served.
func (a *Adapter) On() bool { return a.Listen != "" }

// Listener is where it listens, and for whom.
func (a *Adapter) Listener() Listener { return Listener{Listen: a.Listen, Allow: a.Allow} }

// Log is what is written to standard error.
type Log struct {
	Format string `key:"format" default:"text" help:"text or json"`
	Level  string `key:"level" default:"info" help:"debug, info, warn or error"`
	Access bool   `key:"access" default:"true" help:"a line for each request; POST /accesslog changes it, too"`
}

// Limits bound what a client may cost.
type Limits struct {
	MaxBody        int           `key:"max_body" default:"1048576" help:"bytes of a job; 1 to 67108864"`
	MaxBodies      int           `key:"max_bodies" default:"268435456" help:"bytes of bodies and answers; beyond: 503"`
	MaxHeader      int           `key:"max_header" default:"16384" help:"bytes of a request's headers; 4096 to 1048576"`
	MaxWait        time.Duration `key:"max_wait" default:"10m" help:"longest timeout of a consume; 1s to 24h"`
	MaxWaiting     int           `key:"max_waiting" default:"10000" help:"requests that wait for a job; more are 503"`
	MaxConnections int           `key:"max_connections" default:"20000" help:"open connections of each listener"`
	HeaderTimeout  time.Duration `key:"header_timeout" default:"10s" help:"for a request's headers; 100ms to 10m"`
	BodyTimeout    time.Duration `key:"body_timeout" default:"30s" help:"for a request's body; 100ms to 1h"`
	IdleTimeout    time.Duration `key:"idle_timeout" default:"10m" help:"of a connection without requests; 1s to 24h"`
}

// Defaults are the parameters of requests that give none.
type Defaults struct {
	TTL     int `key:"ttl" default:"86400" help:"s; 0: jobs do not expire"`
	Delay   int `key:"delay" default:"0" help:"s"`
	Tries   int `key:"tries" default:"1" help:"1 to 65535"`
	TTR     int `key:"ttr" default:"120" help:"s; 1 or more"`
	Timeout int `key:"timeout" default:"0" help:"s"`
}

// Pool is one Redis with its queues.
type Pool struct {
	Redis   string        `key:"redis" secret:"true" help:"redis://, rediss:// or unix:// URL, with its password"`
	MaxDead int           `key:"max_dead" default:"10000" help:"dead letters of a queue; the oldest go; -1: no bound"`
	DeadFor time.Duration `key:"dead_for" default:"720h" help:"how long they are kept; -1s: no bound"`
}

// Push is what holds for all groups of package push.
type Push struct {
	Allow []string `key:"allow" help:"addresses and CIDRs that endpoints may have beside public ones"`
}

// Prefixes are the networks of Allow. The error joins those of all that are none.
func (p *Push) Prefixes() ([]netip.Prefix, error) { return prefixes(p.Allow) }

// Default is the configuration of a server without a file.
func Default() Config {
	var c Config
	setDefaults(&c)
	c.API.Listen, c.Admin.Listen = "127.0.0.1:7777", "127.0.0.1:7778"
	return c
}

// max32 is what lmstfy's parameters hold, where an int does.
const max32 = min(1<<32-1, math.MaxInt)

// Validate says all that is wrong, each with its key. It opens no file and no connection.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, key, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
		}
	}
	between := func(key string, d, least, most time.Duration) {
		check(d >= least && d <= most, key, "%v: want %v to %v", d, least, most)
	}
	within := func(key string, n, least, most int) {
		check(n >= least && n <= most, key, "%d: want %d to %d", n, least, most)
	}
	oneOf := func(key, text string, of ...string) {
		check(slices.Contains(of, text), key, "%.40q: want %s", text, strings.Join(of, ", "))
	}
	between("grace", c.Grace, 0, time.Hour)
	oneOf("checks", c.Checks, "warn", "fail", "off")
	c.API.check("api", check)
	c.Admin.check("admin", check)
	c.checkAdapter("gmq", &c.GMQ, check)
	c.checkAdapter("delayq", &c.Delayq, check)
	c.checkListens(check)
	c.Admin.checkAccounts(check)
	c.checkDashboard(check)
	oneOf("log.format", c.Log.Format, "text", "json")
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	l := &c.Limits
	within("limits.max_body", l.MaxBody, 1, 64<<20)
	within("limits.max_bodies", l.MaxBodies, 2<<20, math.MaxInt)
	within("limits.max_header", l.MaxHeader, 4096, 1<<20)
	within("limits.max_waiting", l.MaxWaiting, 1, 1<<30)
	within("limits.max_connections", l.MaxConnections, 1, 1<<30)
	between("limits.max_wait", l.MaxWait, time.Second, 24*time.Hour)
	between("limits.header_timeout", l.HeaderTimeout, 100*time.Millisecond, 10*time.Minute)
	between("limits.body_timeout", l.BodyTimeout, 100*time.Millisecond, time.Hour)
	between("limits.idle_timeout", l.IdleTimeout, time.Second, 24*time.Hour)
	d := &c.Defaults
	within("defaults.ttl", d.TTL, 0, max32)
	within("defaults.delay", d.Delay, 0, max32)
	within("defaults.tries", d.Tries, 1, 1<<16-1)
	within("defaults.ttr", d.TTR, 1, max32)
	within("defaults.timeout", d.Timeout, 0, max32)
	check(d.TTL == 0 || d.TTL >= d.Delay, "defaults.ttl", "%d is shorter than defaults.delay", d.TTL)
	c.checkPools(check)
	_, err := c.Push.Prefixes()
	check(err == nil, "push.allow", "%v", err)
	return errors.Join(errs...)
}

// checkListens says which listeners are at one place.
func (c *Config) checkListens(check func(ok bool, key, format string, args ...any)) {
	met := make(map[string]string)
	for _, l := range []struct{ key, at string }{{"api.listen", c.API.Listen}, {"admin.listen", c.Admin.Listen},
		{"gmq.listen", c.GMQ.Listen}, {"delayq.listen", c.Delayq.Listen}} {
		first, same := met[l.at]
		check(!same || l.at == "" || strings.HasSuffix(l.at, ":0"), l.key, "%q is that of %s, too", l.at, first)
		met[l.at] = l.key
	}
}

// maxPrefix leaves half of a channel's name to the topic.
const maxPrefix = 100

func (c *Config) checkAdapter(at string, a *Adapter, check func(ok bool, key, format string, args ...any)) {
	plain := len(a.Prefix) <= maxPrefix && utf8.ValidString(a.Prefix) && !strings.ContainsFunc(a.Prefix,
		func(r rune) bool { return r == '{' || r == '}' || unicode.IsSpace(r) || unicode.IsControl(r) })
	check(plain, at+".prefix", "%.40q: want up to %d bytes without braces, blanks and control characters", a.Prefix,
		maxPrefix)
	l := a.Listener()
	_, err := l.Prefixes()
	check(err == nil, at+".allow", "%v", err)
	if !a.On() {
		return
	}
	check(len(a.Allow) > 0 || isLocal(a.Listen), at+".listen", "%.60q can be reached from beyond this machine, and "+
		"the protocol has no tokens: want a loopback address, or %s.allow", a.Listen, at)
	_, ok := c.Pools[a.Pool]
	check(ok || len(c.Pools) == 0, at+".pool", "there is no pool %.40q", a.Pool)
}

// isLocal says whether only this machine reaches a listener.
func isLocal(at string) bool {
	if strings.HasPrefix(at, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return false // one of systemd's may be anywhere
	}
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

func (c *Config) checkPools(check func(ok bool, key, format string, args ...any)) {
	check(len(c.Pools) > 0, "pools", "there is none: want at least pools.default.redis, such as redis://localhost:6379")
	if len(c.Pools) > 0 {
		_, ok := c.Pools[c.Admin.Pool]
		check(ok, "admin.pool", "there is no pool %.40q", c.Admin.Pool)
	}
	for name, p := range c.Pools {
		key := "pools." + name
		plain := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
		})
		check(plain, key, "a pool's name has letters, digits, - and _")
		_, err := shunt.NewPool(p.Redis)
		check(p.Redis != "", key+".redis", "it is missing: want a URL such as redis://localhost:6379")
		check(p.Redis == "" || err == nil, key+".redis", "%v", withoutSecret(err, p.Redis))
		check(p.MaxDead >= -1, key+".max_dead", "%d: want 1 or more, or -1 for no bound", p.MaxDead)
		check(p.DeadFor < 0 || p.DeadFor >= time.Second, key+".dead_for", "%v: want 1s or more, or -1s for no bound",
			p.DeadFor)
	}
}

// withoutSecret is an error whose text does not have the password of a URL, nor the URL.
func withoutSecret(err error, secret string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if u, parsed := url.Parse(secret); parsed == nil && u.User != nil {
		if password, has := u.User.Password(); has && password != "" {
			text = strings.ReplaceAll(text, password, "xxxxx")
		}
		return errors.New(strings.ReplaceAll(text, secret, u.Redacted()))
	}
	if strings.Contains(secret, "@") {
		return errors.New("it is no URL such as redis://user:password@host:6379/0")
	}
	return errors.New(text)
}

func (l *Listener) check(at string, check func(ok bool, key, format string, args ...any)) {
	check(l.Listen != "", at+".listen", "it is empty: want host:port, unix:/path or systemd:NAME")
	check((l.Cert == "") == (l.Key == ""), at+".tls_cert", "it goes with %s.tls_key: want both or neither", at)
	_, err := l.Prefixes()
	check(err == nil, at+".allow", "%v", err)
}

// Prefixes are the networks of Allow. The error joins those of all that are none.
func (l *Listener) Prefixes() ([]netip.Prefix, error) { return prefixes(l.Allow) }

func prefixes(texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	var errs []error
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			var a netip.Addr
			if a, err = netip.ParseAddr(text); err == nil {
				p = netip.PrefixFrom(a, a.BitLen())
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%.60q: want an address or a CIDR such as 10.0.0.0/8", text))
			continue
		}
		all = append(all, p.Masked())
	}
	return all, errors.Join(errs...)
}
