package topics

import (
	"errors"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt"
)

// Bounds of shunt, which these protocols do not have.
const (
	maxChannel = 200 // bytes
	maxID      = 255 // bytes
)

// Topics are the channels that begin with a prefix. Its exported fields are its configuration, and are not changed once
// a method was called. Its methods may be called by many goroutines at once.
type Topics struct {
	Queue  *shunt.Queue // required
	Prefix string       // of the channels; empty: a topic is a channel

	hints    hints
	searches searches

	mu       sync.Mutex
	shortest time.Duration // that a job has named, until then
	until    time.Time
}

var (
	// ErrTopic says that a topic is not fit for a channel.
	ErrTopic = errors.New("want a name without slashes, braces, blanks and control characters, of up to 200 bytes " +
		"with the prefix")
	// ErrID says that an id is not fit for a message.
	ErrID = errors.New("want an id of up to 255 bytes that does not begin with \"serial:\"")
)

// Channel is that of a topic.
func (t *Topics) Channel(topic string) (string, error) {
	unfit := func(r rune) bool {
		return r == '/' || r == '{' || r == '}' || unicode.IsSpace(r) || unicode.IsControl(r)
	}
	if topic == "" || len(t.Prefix)+len(topic) > maxChannel || !utf8.ValidString(topic) ||
		strings.ContainsFunc(topic, unfit) {
		return "", ErrTopic
	}
	return t.Prefix + topic, nil
}

// Topic is that of a channel. ok is false where the channel is none of a topic.
func (t *Topics) Topic(channel string) (topic string, ok bool) {
	topic, ok = strings.CutPrefix(channel, t.Prefix)
	return topic, ok && topic != "" && !strings.Contains(topic, "/")
}

// serialPrefix begins the id under which clients know a message without one, such as a Go program enqueues; its serial
// follows.
const serialPrefix = "serial:"

// CheckID says whether a client may give a job this id.
func CheckID(id string) error {
	if id == "" || len(id) > maxID || strings.HasPrefix(id, serialPrefix) {
		return ErrID
	}
	return nil
}

// ID is how clients know a message.
func ID(id, serial string) string {
	if id == "" {
		return serialPrefix + serial
	}
	return id
}

// refOf names a message by how clients know it. ok is false where no message can have that id.
func refOf(channel, id string) (r shunt.Ref, ok bool) {
	if serial, is := strings.CutPrefix(id, serialPrefix); is {
		_, err := ulid.ParseStrict(serial)
		return shunt.BySerial(channel, serial), err == nil
	}
	return shunt.ByID(channel, id), CheckID(id) == nil
}
