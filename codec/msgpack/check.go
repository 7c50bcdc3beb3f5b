package msgpack

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// maxDepth is encoding/json's.
const maxDepth = 10_000

var errCut = errors.New("it ends too early")

// check says whether data is one whole value. The decoder makes room for as many elements as a few bytes say there are,
// and calls itself at each level: so it is given only what is true of both.
func check(data []byte) error {
	var open []uint64 // values that are still to come, of each level
	for left := uint64(1); ; {
		for left == 0 {
			if len(open) == 0 {
				if len(data) > 0 {
					return fmt.Errorf("%d bytes are behind its value", len(data))
				}
				return nil
			}
			left, open = open[len(open)-1], open[:len(open)-1]
		}
		if uint64(len(data)) < left { // each value has a byte at least
			return errCut
		}
		n, values, err := head(data)
		if err != nil {
			return err
		}
		if uint64(len(data)) < n {
			return errCut
		}
		data = data[n:]
		if left--; values > 0 {
			if len(open) == maxDepth {
				return fmt.Errorf("it is nested deeper than %d", maxDepth)
			}
			open, left = append(open, left), values
		}
	}
}

// head gives the bytes of a value, and how many values follow that are part of it.
func head(data []byte) (n, values uint64, err error) {
	switch b := data[0]; {
	case b < 0x80, b >= 0xe0, b == 0xc0, b == 0xc2, b == 0xc3: // numbers, nil and booleans
		return 1, 0, nil
	case b < 0x90:
		return 1, 2 * uint64(b&0x0f), nil // map
	case b < 0xa0:
		return 1, uint64(b & 0x0f), nil // array
	case b < 0xc0:
		return 1 + uint64(b&0x1f), 0, nil // string
	case b == 0xc1:
		return 0, 0, errors.New("it has the byte 0xc1")
	case b <= 0xc6: // binary
		size, at, err := number(data, b-0xc4)
		return at + size, 0, err
	case b <= 0xc9: // extension: its type, and as many bytes
		size, at, err := number(data, b-0xc7)
		return at + 1 + size, 0, err
	case b <= 0xcb: // floats
		return 1 + 4<<(b-0xca), 0, nil
	case b <= 0xcf:
		return 1 + 1<<(b-0xcc), 0, nil
	case b <= 0xd3:
		return 1 + 1<<(b-0xd0), 0, nil
	case b <= 0xd8:
		return 2 + 1<<(b-0xd4), 0, nil // extension
	case b <= 0xdb:
		size, at, err := number(data, b-0xd9)
		return at + size, 0, err
	case b <= 0xdd:
		values, n, err = number(data, b-0xdc+1)
		return n, values, err
	default:
		values, n, err = number(data, b-0xde+1)
		return n, 2 * values, err
	}
}

// number reads the number of 1, 2 or 4 bytes behind the first byte, and says where it ends.
func number(data []byte, log byte) (v, end uint64, err error) {
	end = 1 + 1<<log
	if uint64(len(data)) < end {
		return 0, 0, errCut
	}
	switch log {
	case 0:
		return uint64(data[1]), end, nil
	case 1:
		return uint64(binary.BigEndian.Uint16(data[1:])), end, nil
	}
	return uint64(binary.BigEndian.Uint32(data[1:])), end, nil
}
