package gmq

import (
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// request is one as it comes. A pointer is nil where a field is missing or null.
type request struct {
	Method string           `json:"method"`
	Params *json.RawMessage `json:"params"`
	ID     *json.RawMessage `json:"id"`
}

// response has its fields in the order in which Go's net/rpc/jsonrpc writes them.
type response struct {
	ID     *json.RawMessage `json:"id"`
	Result any              `json:"result"`
	Error  any              `json:"error"`
}

var (
	errNoJSON   = errors.New("that is no JSON")
	errUTF8     = errors.New("the request is not UTF-8")
	errNoParams = errors.New("jsonrpc: request body missing params") // as net/rpc/jsonrpc has it
)

// parse reads an object. Of a request that is JSON, and yet wrong, it gives the id with the error. errNoJSON: it is
// none.
func parse(object []byte) (r request, err error) {
	var mistyped *json.UnmarshalTypeError
	switch err = json.Unmarshal(object, &r); {
	case errors.As(err, &mistyped):
	case err != nil:
		return request{}, errNoJSON
	case !utf8.Valid(object): // the decoder would change it without a word
		err = errUTF8
	}
	return r, err
}

// argument reads the one element of a request's params; what is beyond it is ignored, as net/rpc/jsonrpc does.
func argument[T any](r *request) (v T, err error) {
	if r.Params == nil {
		return v, errNoParams
	}
	one := [1]T{}
	err = json.Unmarshal(*r.Params, &one)
	return one[0], err
}

// line is a response as it is written.
func (r *response) line() []byte {
	b, err := json.Marshal(r)
	if err != nil { // of texts, maps of texts and truth values there is none
		b = []byte(`{"id":null,"result":null,"error":"internal error"}`)
	}
	return append(b, '\n')
}
