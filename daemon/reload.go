package daemon

import (
	"errors"
	"log/slog"
	"reflect"
	"strings"

	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/daemon/serve"
)

// Reload takes in another configuration while Run runs: the level of the log, whether requests are logged, limits on
// bodies and waits, networks, accounts, viewers, whether the dashboard is served, and certificates, whose files are
// read again. Of other keys that differ the log says that they need a restart. What is wrong changes nothing of its
// own, and is in the error; the rest is taken in.
func (d *Daemon) Reload(c config.Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.set {
		return errors.New("daemon: it does not serve yet")
	}
	d.notify("RELOADING=1")
	defer d.notify("READY=1")
	var errs []error
	if d.Level != nil {
		errs = append(errs, d.Level.UnmarshalText([]byte(c.Log.Level)))
	}
	d.accessLog.Store(c.Log.Access)
	errs = append(errs, d.api.SetLimits(limits(&c)))
	d.admin.SetAccounts(operators(&c))
	d.boards.set(&c)
	if allow, err := c.Push.Prefixes(); err == nil { // Validate has seen it
		d.push.SetAllow(allow)
	}
	gmqAt, delayqAt := c.GMQ.Listener(), c.Delayq.Listener()
	for name, at := range map[string]*config.Listener{"api": &c.API, "admin": &c.Admin.Listener, "gmq": &gmqAt,
		"delayq": &delayqAt} {
		networks, err := at.Prefixes()
		if front := d.fronts[name]; front != nil && err == nil {
			front.Allow(networks)
		}
		if front, is := d.fronts[name].(*serve.Front); is {
			front.SetMaxTime(maxTime(&c.Limits))
		}
		errs = append(errs, err)
		if cert := d.certs[name]; cert != nil {
			errs = append(errs, cert.Load())
		}
	}
	if keys := needRestart(d.current, c); len(keys) > 0 {
		d.Log.Warn("these keys have changed and need a restart", "keys", strings.Join(keys, ", "))
	}
	d.Log.Info("shuntd has read its configuration anew")
	return errors.Join(errs...)
}

// needRestart are the tables in which something differs that Reload does not take in.
func needRestart(old, now config.Config) (keys []string) {
	taken := func(c *config.Config) {
		c.Log.Level, c.Log.Access = "", false
		l := &c.Limits
		l.MaxBody, l.MaxBodies, l.BodyTimeout, l.MaxWait, l.MaxWaiting = 0, 0, 0, 0, 0
		c.API.Allow, c.Admin.Allow, c.GMQ.Allow, c.Delayq.Allow = nil, nil, nil, nil
		c.Admin.Accounts, c.Admin.Viewers, c.Push.Allow, c.Dashboard.On = nil, nil, nil, false
	}
	taken(&old)
	taken(&now)
	a, b := reflect.ValueOf(old), reflect.ValueOf(now)
	for i := range a.NumField() {
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			keys = append(keys, a.Type().Field(i).Tag.Get("key"))
		}
	}
	return keys
}

// LevelOf is the level that a configuration names; a wrong name is Info.
func LevelOf(c *config.Config) (level slog.Level) {
	_ = level.UnmarshalText([]byte(c.Log.Level))
	return level
}
