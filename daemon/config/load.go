package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Prefix begins the names of environment variables.
const Prefix = "SHUNTD_"

// maxFile bounds the configuration file.
const maxFile = 1 << 20

// Source is where a configuration comes from.
type Source struct {
	File string   // path; empty: none
	Env  []string // as os.Environ gives it
	Args []string // flags, such as -api.listen=:7777 or -api.listen :7777
}

// Load reads a configuration and validates it. The error joins all that is wrong with it, each with where it stands.
func Load(from Source) (Config, error) {
	c := Default()
	l := loading{c: &c}
	if from.File != "" {
		l.file(from.File)
	}
	l.env(from.Env)
	l.args(from.Args)
	if err := c.Validate(); err != nil {
		l.errs = append(l.errs, err)
	}
	return c, errors.Join(l.errs...)
}

// loading gathers what is wrong.
type loading struct {
	c    *Config
	errs []error
}

func (l *loading) set(where, name string, path []string, value any) {
	err := set(reflect.ValueOf(l.c).Elem(), path, value)
	if errors.Is(err, errUnknown) {
		if near := nearest(strings.Join(path, ".")); near != "" {
			err = fmt.Errorf("%w: is it %s?", err, near)
		}
	}
	if err != nil {
		l.errs = append(l.errs, fmt.Errorf("%s%s: %w", where, name, err))
	}
}

func (l *loading) file(name string) {
	text, err := read(name)
	if err != nil {
		l.errs = append(l.errs, err)
		return
	}
	tree := make(map[string]any)
	if _, err := toml.Decode(text, &tree); err != nil {
		var at toml.ParseError
		if errors.As(err, &at) { // its text may quote a password
			what, _, _ := strings.Cut(at.Message, "'")
			what, _, _ = strings.Cut(what, `"`)
			err = fmt.Errorf("line %d: it is no TOML: %s", at.Position.Line, strings.TrimSpace(what))
		}
		l.errs = append(l.errs, fmt.Errorf("%s: %w", name, err))
		return
	}
	l.tree(name+": ", nil, tree)
}

func read(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if info.Size() > maxFile || info.IsDir() {
		return "", fmt.Errorf("%s: want a file of up to %d bytes", name, maxFile)
	}
	text, err := os.ReadFile(name)
	return string(text), err
}

// tree sets what is in a table of TOML, in the order of the keys.
func (l *loading) tree(where string, path []string, t map[string]any) {
	keys := make([]string, 0, len(t))
	for key := range t {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		at := append(slices.Clip(path), key)
		if sub, ok := t[key].(map[string]any); ok {
			l.tree(where, at, sub)
			continue
		}
		l.set(where, strings.Join(at, "."), at, t[key])
	}
}

// env takes the variables that begin with Prefix. A pool's name, and a user's, is in small letters there.
func (l *loading) env(all []string) {
	for _, pair := range all {
		name, value, _ := strings.Cut(pair, "=")
		rest, ours := strings.CutPrefix(name, Prefix)
		if !ours {
			continue
		}
		path := envPath(strings.ToLower(rest))
		if path == nil && (strings.HasPrefix(rest, "SERVICE_") || strings.HasPrefix(rest, "PORT")) {
			continue // Kubernetes sets these where a service is called shuntd
		}
		if path == nil {
			err := errUnknown
			if near := nearest(strings.ToLower(rest)); near != "" {
				err = fmt.Errorf("%w: is it %s?", err, near)
			}
			l.errs = append(l.errs, fmt.Errorf("environment %s: %w", name, err))
			continue
		}
		l.set("environment ", name, path, value)
	}
}

// envPath is the path of a variable. Its parts are separated as those of keys' names are joined.
func envPath(name string) []string {
	for _, k := range Keys() {
		before, after, named := strings.Cut(k.Name, "NAME")
		flat := strings.ReplaceAll(before, ".", "_")
		if !named {
			if flat == name {
				return strings.Split(k.Name, ".")
			}
			continue
		}
		rest, ok := strings.CutPrefix(name, flat)
		end := strings.ReplaceAll(after, ".", "_")
		who, fits := strings.CutSuffix(rest, end)
		if !ok || !fits || who == "" {
			continue
		}
		path := append(strings.Split(strings.TrimSuffix(before, "."), "."), who)
		if after != "" {
			path = append(path, strings.TrimPrefix(after, "."))
		}
		return path
	}
	return nil
}

// args takes flags. A flag of a truth value may stand alone.
func (l *loading) args(all []string) {
	for i := 0; i < len(all); i++ {
		arg := all[i]
		name, isFlag := strings.CutPrefix(strings.TrimPrefix(arg, "-"), "-")
		if !isFlag {
			name, isFlag = strings.CutPrefix(arg, "-")
		}
		if !isFlag || name == "" {
			l.errs = append(l.errs, fmt.Errorf("argument %.60q: want flags, such as -api.listen=:7777", arg))
			continue
		}
		name, value, given := strings.Cut(name, "=")
		path := strings.Split(name, ".")
		if !given {
			switch {
			case isSwitch(path):
				value = "true"
			case i+1 < len(all):
				i++
				value = all[i]
			default:
				l.errs = append(l.errs, fmt.Errorf("flag -%s: its value is missing", name))
				continue
			}
		}
		l.set("flag -", name, path, value)
	}
}

func isSwitch(path []string) bool {
	v := reflect.ValueOf(&Config{}).Elem()
	for _, key := range path {
		if v.Kind() != reflect.Struct {
			return false
		}
		f, _, ok := field(v, key)
		if !ok {
			return false
		}
		v = f
	}
	return v.Kind() == reflect.Bool
}

// nearest is the key that a name is most like, or none.
func nearest(name string) string {
	best, least := "", 4
	for _, k := range Keys() {
		if d := distance(name, k.Name); d < least {
			best, least = k.Name, d
		}
	}
	return best
}

// distance is how many letters are added, left out or changed between two names, after Levenshtein.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
