package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
)

func load(t *testing.T, file string, from Source) (Config, error) {
	t.Helper()
	if file != "" {
		from.File = filepath.Join(t.TempDir(), "shuntd.toml")
		if err := os.WriteFile(from.File, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Load(from)
}

const least = "[pools.default]\nredis = \"redis://localhost:6379\"\n"

func TestDefaultsAreWhatTheTagsSay(t *testing.T) {
	t.Parallel()
	c, err := load(t, least, Source{})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Pools = map[string]Pool{"default": {Redis: "redis://localhost:6379", MaxDead: 10000, DeadFor: 720 * time.Hour}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v", c)
	}
	if c.API.Listen != "127.0.0.1:7777" || c.Limits.MaxWait != 10*time.Minute || !c.Log.Access {
		t.Errorf("%+v", c)
	}
}

// A flag wins over a variable, that over the file.
func TestSources(t *testing.T) {
	t.Parallel()
	file := least + `
[limits]
max_wait = "1m"
max_body = 2
max_waiting = 3
[api]
allow = ["10.0.0.0/8", "::1"]
`
	c, err := load(t, file, Source{
		Env: []string{"HOME=/", "SHUNTD_PORT_7777_TCP=tcp://10.0.0.1:7777", "SHUNTD_SERVICE_HOST=10.0.0.1",
			"SHUNTD_LIMITS_MAX_BODY=20", "SHUNTD_LIMITS_MAX_WAITING=30",
			"SHUNTD_POOLS_SECOND_REDIS=redis://b", "SHUNTD_ADMIN_ACCOUNTS_ANN=secret",
			"SHUNTD_ADMIN_ALLOW=127.0.0.1, ::1", "SHUNTD_POOLS_SECOND_MAX_DEAD=5"},
		Args: []string{"-limits.max_waiting=300", "--log.format", "json", "-admin.open", "-log.access=false",
			"-pools.third.redis", "redis://c"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Limits.MaxWait, want.Limits.MaxBody, want.Limits.MaxWaiting = time.Minute, 20, 300
	want.API.Allow, want.Admin.Allow = []string{"10.0.0.0/8", "::1"}, []string{"127.0.0.1", "::1"}
	want.Admin.Accounts, want.Admin.Open = map[string]string{"ann": "secret"}, true
	want.Log.Format, want.Log.Access = "json", false
	want.Pools = map[string]Pool{
		"default": {"redis://localhost:6379", 10000, 720 * time.Hour}, "second": {"redis://b", 5, 720 * time.Hour},
		"third": {"redis://c", 10000, 720 * time.Hour},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v\nwant %+v", c, want)
	}
	if ps, err := c.API.Prefixes(); err != nil || len(ps) != 2 || ps[1].Bits() != 128 {
		t.Error(ps, err)
	}
}

// All mistakes are told at once, with where they stand, and without a secret.
func TestMistakes(t *testing.T) {
	t.Parallel()
	_, err := load(t, `
grace = 5
checks = "perhaps"
nothing = 1
[api]
listn = ":1"
listen = ""
allow = ["10.0.0.0/33", "::1", "x"]
tls_cert = "cert.pem"
[limits]
max_body = "a"
max_wait = "0s"
[log]
level = 3
[defaults]
tries = 0
ttl = 5
delay = 6
[gmq]
listen = ":9503"
prefix = "a b"
pool = "fifth"
[delayq]
listen = "127.0.0.1:9503"
allow = ["y"]
[pools.default]
redis = "redis://ann:hunter2@localhost:x/y?z=1"
[pools.second]
max_dead = -2
redis = 5
[pools."th ird"]
redis = "redis://localhost"
[admin]
pool = "fourth"
viewers = ["bob", "eve"]
[admin.accounts]
"a:b" = "hunter2"
[dashboard]
on = true
payloads = "perhaps"
viewer = ["x"]
`, Source{Env: []string{"SHUNTD_LIMITS_MAXBODY=1", "SHUNTD_LOG_ACCESS=perhaps"},
		Args: []string{"word", "-", "-limits.max_waitin=1", "-grace"}})
	if err == nil {
		t.Fatal("no mistakes")
	}
	text := err.Error()
	for _, want := range []string{
		`shuntd.toml: grace: 5: want a time with its unit`, `checks: "perhaps": want warn, fail, off`,
		`shuntd.toml: nothing: there is no such key`, `api.listn: there is no such key: is it api.listen?`,
		`api.listen: it is empty`, `"10.0.0.0/33": want an address or a CIDR`, `"x": want an address`,
		`api.tls_cert: it goes with api.tls_key`, `limits.max_body: a: want a whole number`,
		`limits.max_wait: 0s: want 1s to 24h0m0s`, `log.level: 3: want a text, in quotes`,
		`defaults.tries: 0: want 1 to 65535`, `defaults.ttl: 5 is shorter than defaults.delay`,
		`pools.default.redis: `, `pools.second.redis: it is no text`, `pools.second.max_dead: -2: want`,
		`pools.second.redis: it is missing`, `pools.th ird: a pool's name has`, `admin.pool: there is no pool "fourth"`,
		`admin.accounts: "a:b": want a name`, `environment SHUNTD_LIMITS_MAXBODY: there is no such key`,
		`environment SHUNTD_LOG_ACCESS: perhaps: want true or false`, `argument "word": want flags`, `argument "-"`,
		`gmq.listen: ":9503" can be reached from beyond this machine, and the protocol has no tokens`,
		`gmq.prefix: "a b": want up to 100 bytes`, `gmq.pool: there is no pool "fifth"`, `delayq.allow: "y": want an`,
		`admin.viewers: "bob" is not in admin.accounts`, `admin.viewers: "eve" is not in`,
		`dashboard.payloads: perhaps: want true or false`, `dashboard.viewer: there is no such key`,
		`flag -limits.max_waitin: there is no such key: is it limits.max_waiting?`, `flag -grace: its value is missing`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not told: %s", want)
		}
	}
	if strings.Contains(text, "hunter2") {
		t.Error("the password is told")
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestNoTOML(t *testing.T) {
	t.Parallel()
	_, err := load(t, least+"[admin.accounts]\nann = hunter2\n", Source{})
	if err == nil || !strings.Contains(err.Error(), "line 4") || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	if _, err := Load(Source{File: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a missing file is no mistake")
	}
}

// Each key is reached by its flag and by its variable.
func TestKeys(t *testing.T) {
	t.Parallel()
	for _, k := range Keys() {
		if k.Help == "" {
			t.Errorf("%s has no help", k.Name)
		}
		name := strings.ReplaceAll(k.Name, "NAME", "x")
		variable := strings.ToLower(strings.ReplaceAll(name, ".", "_"))
		if got := strings.Join(envPath(variable), "."); got != name {
			t.Errorf("%s is %s", variable, got)
		}
	}
}

// The file that the repository offers has every key, and its values are the defaults.
func TestExample(t *testing.T) {
	t.Parallel()
	const name = "../shuntd.toml"
	c, err := Load(Source{File: name})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Pools = map[string]Pool{"default": {"redis://localhost:6379", 10000, 720 * time.Hour}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v\nwant %+v", c, want)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	tree := make(map[string]any)
	if err := toml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	for _, k := range Keys() {
		at, path := any(tree), strings.Split(strings.ReplaceAll(k.Name, "NAME", "default"), ".")
		for _, part := range path {
			table, _ := at.(map[string]any)
			at = table[part]
		}
		if at == nil && k.Name != "admin.accounts.NAME" {
			t.Errorf("%s is not there", k.Name)
		}
	}
}

// The dashboard without accounts is for this host; where the listener is for others, too, that is a mistake. Somebody
// may operate.
func TestDashboard(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args, complaint string
	}{
		{"-dashboard.on", ""},
		{"-dashboard.on -admin.listen=:7778", "dashboard.on: "},
		{"-dashboard.on -admin.listen=unix:/run/a", "dashboard.on: "},
		{"-dashboard.on -admin.listen=systemd:admin", "dashboard.on: "},
		{"-dashboard.on -admin.listen=:7778 -admin.open", ""},
		{"-dashboard.on -admin.listen=:7778 -admin.accounts.ann=x", ""},
		{"-admin.listen=:7778", ""},
		{"-admin.accounts.ann=x -admin.accounts.bob=x -admin.viewers=bob", ""},
		{"-admin.accounts.bob=x -admin.viewers=bob", "admin.viewers: all of admin.accounts"},
		{"-admin.viewers=bob", `admin.viewers: "bob" is not in admin.accounts`},
		{"-admin.accounts." + strings.Repeat("x", 256) + "=x", "admin.accounts: "},
	} {
		_, err := load(t, least, Source{Args: strings.Fields(c.args)})
		if (err == nil) != (c.complaint == "") || err != nil && !strings.Contains(err.Error(), c.complaint) {
			t.Errorf("%s: %v, want %q", c.args, err, c.complaint)
		}
	}
}

// A protocol without tokens is local, or has a list of networks.
func TestAdapters(t *testing.T) {
	t.Parallel()
	for listen, ok := range map[string]bool{
		"": true, "127.0.0.1:9503": true, "127.8.8.8:1": true, "[::1]:9503": true, "localhost:1": true,
		"unix:/run/gmq": true,
		":9503":         false, "0.0.0.0:9503": false, "192.0.2.1:9503": false, "[::]:9503": false,
		"systemd:gmq": false, "localhost.example.org:1": false, "9503": false, "127.0.0.1:7777": false,
	} {
		for _, at := range []string{"gmq", "delayq"} {
			_, err := load(t, least, Source{Args: []string{"-" + at + ".listen=" + listen}})
			if ok != (err == nil) || err != nil && !strings.Contains(err.Error(), at+".listen: ") {
				t.Errorf("%s on %q: %v", at, listen, err)
			}
		}
	}
	c, err := load(t, least, Source{Args: []string{"-gmq.listen=:9503", "-gmq.allow=10.0.0.0/8", "-gmq.prefix=gmq/"}})
	if err != nil || !c.GMQ.On() || c.Delayq.On() || c.GMQ.Pool != "default" {
		t.Errorf("%+v %v", c, err)
	}
}

// No file and no variable makes Load panic, and what it takes is valid.
func FuzzLoad(f *testing.F) {
	text, err := os.ReadFile("../shuntd.toml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text), "SHUNTD_LIMITS_MAX_WAIT=1m", "-grace=1s")
	f.Add("[pools.x]\nredis = 1", "SHUNTD_API_ALLOW=10.0.0.0/8,::1", "-x")
	f.Fuzz(func(t *testing.T, text, env, arg string) {
		file := filepath.Join(t.TempDir(), "c.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Skip(err)
		}
		c, err := Load(Source{File: file, Env: []string{env}, Args: []string{arg}})
		if bad := c.Validate(); err == nil && bad != nil {
			t.Errorf("it is taken, and is not valid: %v", bad)
		}
	})
}
