package sim

import (
	"errors"
	"strings"
)

// subscribes says whether replies can no longer be told apart after the first one to this command.
func subscribes(name []byte) bool {
	return strings.EqualFold(string(name), "SUBSCRIBE") || strings.EqualFold(string(name), "PSUBSCRIBE")
}

// command reads a command from the beginning of b, and says how many bytes it has; 0: it is not whole yet.
func command(b []byte) (args [][]byte, n int) {
	count, at, is := number(b, 0, '*')
	if !is {
		return nil, 0
	}
	args = make([][]byte, count)
	for i := range args {
		size, from, is := number(b, at, '$')
		if !is || len(b) < from+size+2 {
			return nil, 0
		}
		args[i], at = b[from:from+size], from+size+2
	}
	return args, at
}

// number reads a line such as *3, and says where the next one begins.
func number(b []byte, at int, kind byte) (n, next int, is bool) {
	for i := at; i < len(b); i++ {
		switch c := b[i]; {
		case i == at && c != kind:
			panic(errProtocol)
		case i == at, c == '\r':
		case c == '\n':
			return n, i + 1, true
		case c < '0' || c > '9':
			panic(errProtocol)
		default:
			n = n*10 + int(c-'0')
		}
	}
	return 0, 0, false
}

var errProtocol = errors.New("sim: the client does not speak RESP")
