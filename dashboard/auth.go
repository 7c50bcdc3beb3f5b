package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Role says what a User may do.
type Role string

const (
	Viewer   Role = "viewer"   // sees everything, changes nothing in Redis
	Operator Role = "operator" // may act on messages, channels and recurring messages
)

// User is who uses the dashboard.
type User struct {
	Name string // 1 to 255 bytes, for the audit
	Role Role
}

// Login is how one user of BasicAuth logs in, and as what.
type Login struct {
	Password string // an empty one lets nobody in
	Role     Role
}

// Challenge is an error of Options.Authenticate that asks for credentials: its text is the header WWW-Authenticate.
type Challenge string

// Error says what is missing.
func (c Challenge) Error() string { return "dashboard: log in: " + string(c) }

// ErrForbidden is an error of Options.Authenticate for somebody who is known, and may not come in.
var ErrForbidden = errors.New("dashboard: this user may not see it")

// BasicAuth authenticates by name and password, for [Options.Authenticate]. How long it takes does not tell which names
// exist, nor how much of a password was right. The map is read once, now. Serve it by TLS.
func BasicAuth(users map[string]Login) func(*http.Request) (User, error) {
	known := make(map[[32]byte]User, len(users))
	for name, login := range users {
		if login.Password != "" {
			known[sum(name, login.Password)] = User{Name: name, Role: login.Role}
		}
	}
	return func(r *http.Request) (User, error) {
		name, password, _ := r.BasicAuth()
		return find(known, sum(name, password), Challenge(`Basic realm="shunt", charset="UTF-8"`))
	}
}

// Bearer authenticates by the token of the header Authorization, for [Options.Authenticate]: for scripts, and for
// proxies that add it. Users by token; an empty token lets nobody in. The map is read once, now.
func Bearer(users map[string]User) func(*http.Request) (User, error) {
	known := make(map[[32]byte]User, len(users))
	for token, user := range users {
		if token != "" {
			known[sum("", token)] = user
		}
	}
	return func(r *http.Request) (User, error) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			token = ""
		}
		return find(known, sum("", token), Challenge(`Bearer realm="shunt"`))
	}
}

func sum(name, secret string) [32]byte {
	head := sha256.Sum256([]byte(name))
	return sha256.Sum256(append(head[:], secret...))
}

// find compares with every one, so that its time tells nothing.
func find(known map[[32]byte]User, given [32]byte, else_ error) (User, error) {
	var found User
	err := else_
	for sum, user := range known {
		if subtle.ConstantTimeCompare(sum[:], given[:]) == 1 {
			found, err = user, nil
		}
	}
	return found, err
}

// LocalOnly lets in who sits at this host, as the operator "local"; others get ErrForbidden. It is what a nil
// [Options.Authenticate] does. A page of another site may be given the name localhost's address (DNS rebinding), so the
// Host has to be loopback too; what came through a proxy may be from anywhere.
func LocalOnly(r *http.Request) (User, error) {
	for _, by := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(by) != "" {
			return User{}, ErrForbidden
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() || !loopbackHost(r.Host) {
		return User{}, ErrForbidden
	}
	return User{Name: "local", Role: Operator}, nil
}

func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}

const tokenCookie = "shunt_token"

// token is what each form must send: that of the browser's cookie, which no other site can read.
func token(w http.ResponseWriter, r *http.Request) string {
	if c, err := r.Cookie(tokenCookie); err == nil && len(c.Value) == 26 {
		return c.Value
	}
	t := rand.Text()
	setCookie(w, r, tokenCookie, t, 0)
	return t
}

// setCookie sets a cookie for the path that the handler is mounted under, which is the default of browsers.
func setCookie(w http.ResponseWriter, r *http.Request, name, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, MaxAge: maxAge, HttpOnly: true, Secure: r.TLS != nil,
		SameSite: http.SameSiteStrictMode})
}

var crossOrigin http.CrossOriginProtection

// forged says why a request that changes something does not come from a page of this handler.
func forged(r *http.Request) error {
	if err := crossOrigin.Check(r); err != nil {
		return err
	}
	c, err := r.Cookie(tokenCookie)
	if err != nil || len(c.Value) != 26 ||
		subtle.ConstantTimeCompare([]byte(c.Value), []byte(r.PostFormValue("token"))) != 1 {
		return errors.New("the token of the form is missing or old")
	}
	return nil
}
