package main

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
)

// profile names one Redis and who works on it.
type profile struct {
	Redis string `toml:"redis"`
	As    string `toml:"as"`
}

// profiles is the configuration file.
type profiles struct {
	Default  string             `toml:"default"`
	Profiles map[string]profile `toml:"profiles"`
}

// profiles reads the configuration file; without one there are none.
func (a *app) profiles() (p profiles, name string, err error) {
	dir := a.getenv("XDG_CONFIG_HOME")
	if dir == "" {
		dir = filepath.Join(a.getenv("HOME"), ".config")
	}
	name = filepath.Join(dir, "shunt", "config.toml")
	seen, err := toml.DecodeFile(name, &p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, name, nil
	case err != nil:
		return p, name, usage("%s: %w", name, err)
	case len(seen.Undecoded()) > 0:
		return p, name, usage("%s: there is no key %s: want default, and redis and as of [profiles.NAME]", name,
			seen.Undecoded()[0])
	}
	return p, name, nil
}

// chosen is the profile of this call.
func (a *app) chosen() (profile, error) {
	if a.redis != "" {
		return profile{Redis: a.redis}, nil
	}
	if at := cmp.Or(a.getenv("SHUNT_REDIS"), a.getenv("REDIS_URL")); at != "" && a.profile == "" {
		return profile{Redis: at}, nil
	}
	all, file, err := a.profiles()
	if err != nil {
		return profile{}, err
	}
	name := cmp.Or(a.profile, all.Default)
	p, has := all.Profiles[name]
	if name != "" && !has {
		return p, usage("%s has no profile %q: it has %s", file, name,
			cmp.Or(strings.Join(slices.Sorted(maps.Keys(all.Profiles)), ", "), "none"))
	}
	p.Redis = cmp.Or(p.Redis, "redis://localhost:6379")
	return p, nil
}

// where are the flags of this call that say which Redis it is, for a command that goes on. A password is left out: who
// goes on without it is refused, and does not end up elsewhere.
func (a *app) where() (flags string) {
	if a.redis != "" {
		at := a.redis
		if u, err := url.Parse(at); err == nil {
			at = u.Redacted()
		}
		flags += " --redis " + quoted(at)
	}
	if a.profile != "" {
		flags += " --profile " + quoted(a.profile)
	}
	return flags
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+,="
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func (a *app) completeProfile(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, _, _ := a.profiles()
	return slices.Sorted(maps.Keys(all.Profiles)), cobra.ShellCompDirectiveNoFileComp
}
