package link

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"github.com/gomodule/redigo/redis"
)

// Class is the outcome of a command, as far as its error shows it.
type Class int

const (
	Done        Class = iota // executed, no error
	NotExecuted              // surely not executed: it may be sent again
	Unknown                  // sent without a reply: it may have been executed, or may yet be
	Fatal                    // refused, and waiting does not help: wrong type, permission, password
	Failed                   // executed with an error
)

// Error is a command's failure on the way to Redis; the class is NotExecuted or Unknown.
type Error struct {
	Class Class
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// refusals are the first words of replies after which nothing was executed. True means that the connection should be
// dropped too, because its server has changed its role or is not ready.
var refusals = map[string]bool{
	"ASK": false, "TRYAGAIN": false, "CLUSTERDOWN": false, "OOM": false, "NOSCRIPT": false,
	"BUSY":       false,
	"NOREPLICAS": false, "MISCONF": false, "LOADING": true, "READONLY": true, "MASTERDOWN": true, "UNBLOCKED": true,
}

// fatals are refusals that only a person can mend. MOVED is that of a Redis Cluster, which is not supported.
var fatals = map[string]bool{"WRONGTYPE": false, "NOPERM": false, "NOAUTH": true, "WRONGPASS": true, "MOVED": false}

// forbidden begins the reply to a script that may not run a command, or touch a key, of a server from 7 on; before, and
// outside scripts, it is NOPERM.
const forbidden = "ERR The user executing the script can't"

// Code is the first word of a server's error reply, and empty for any other error. A server older than 7 wraps a
// script's error in its own; Code finds it there.
func Code(err error) string {
	if err == nil { // the common case: it must not cost the memory of e
		return ""
	}
	var e redis.Error
	if !errors.As(err, &e) {
		return ""
	}
	text := string(e)
	code, _, _ := strings.Cut(text, " ")
	if code == "@user_script:" { // a refusal that a script had by pcall, and returned
		code = "ERR"
	}
	switch {
	case code != "ERR":
		return code
	case strings.HasPrefix(text, forbidden):
		return "NOPERM"
	}
	for _, set := range []map[string]bool{refusals, fatals} {
		for c := range set {
			if strings.Contains(text, "-"+c+" ") || strings.Contains(text, ": "+c+" ") {
				return c
			}
		}
	}
	return code
}

// Classify judges the error of one command.
func Classify(err error) Class {
	if err == nil {
		return Done
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	code := Code(err)
	if _, ok := refusals[code]; ok {
		return NotExecuted
	}
	if _, ok := fatals[code]; ok {
		return Fatal
	}
	if code == "" {
		return Unknown
	}
	return Failed
}

// sentAway says of a failed dial that only a person can mend it: the server refuses this client, or is no Redis that
// the URL describes.
func sentAway(err error) bool {
	var certificate *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	if errors.As(err, &certificate) || errors.As(err, &plain) {
		return true
	}
	if code := Code(err); code != "" {
		_, wait := refusals[code]
		return !wait && !strings.Contains(err.Error(), "max number of clients") // which end some day
	}
	return strings.Contains(err.Error(), "redigo: unexpected response line") // redigo does not export its type
}

// nobodyThere says of a failed dial that its address has no such server now: none listens, there is no such host, or
// what is there does not speak TLS.
func nobodyThere(err error) bool {
	var host *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errNoHandshake) || errors.Is(err, fs.ErrNotExist) ||
		errors.As(err, &host) && host.IsNotFound
}

// drops reports whether a connection should be closed after this reply.
func drops(err error) bool {
	code := Code(err)
	return refusals[code] || fatals[code]
}
