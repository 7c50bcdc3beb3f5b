package config

import (
	"slices"
	"strings"
)

// Dashboard is package dashboard on the admin listener, at /dashboard/.
type Dashboard struct {
	On       bool `key:"on" help:"serve it at /dashboard/ of the admin listener, to admin.accounts"`
	Payloads bool `key:"payloads" default:"true" help:"whether it shows payloads, headers and results of messages"`
}

// maxUser is how long a name in the audit may be, in bytes.
const maxUser = 255

func (a *Admin) checkAccounts(check func(ok bool, key, format string, args ...any)) {
	able := 0
	for user, password := range a.Accounts {
		check(user != "" && len(user) <= maxUser && password != "" && !strings.Contains(user, ":"), "admin.accounts",
			"%.40q: want a name of up to %d bytes without colon, and a password", user, maxUser)
		if !slices.Contains(a.Viewers, user) {
			able++
		}
	}
	for _, user := range a.Viewers {
		_, ok := a.Accounts[user]
		check(ok, "admin.viewers", "%.40q is not in admin.accounts: want names of users there", user)
	}
	// Where no operator has a password the routes for operators ask for none.
	check(able > 0 || len(a.Accounts) == 0, "admin.viewers", "all of admin.accounts are viewers: want an operator, too")
}

func (c *Config) checkDashboard(check func(ok bool, key, format string, args ...any)) {
	a := &c.Admin
	local := isLocal(a.Listen) && !strings.HasPrefix(a.Listen, "unix:") // which a proxy may stand before
	check(!c.Dashboard.On || len(a.Accounts) > 0 || a.Open || local, "dashboard.on",
		"without admin.accounts only this host may see it, at localhost, and admin.listen is %.60q: want an account, "+
			"or a loopback address there", a.Listen)
}
