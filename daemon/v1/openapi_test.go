package v1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// document is the OpenAPI document as tests read it.
type document struct {
	text      map[string]any
	compiler  *jsonschema.Compiler
	mu        sync.Mutex
	schemas   map[string]*jsonschema.Schema // by JSON pointer
	exercised map[string]bool               // operation and status
}

const documentURL = "https://shuntd.test/openapi.json"

var described = readDocument()

func readDocument() *document {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(Document))
	if err != nil {
		panic(err)
	}
	d := &document{text: v.(map[string]any), compiler: jsonschema.NewCompiler(),
		schemas: make(map[string]*jsonschema.Schema), exercised: make(map[string]bool)}
	d.compiler.DefaultDraft(jsonschema.Draft2020) // the dialect of OpenAPI 3.1
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(documentURL, v); err != nil {
		panic(err)
	}
	return d
}

// at is what a JSON pointer's parts name, through references.
func (d *document) at(parts ...string) (any, []string, bool) {
	var v any = d.text
	for i, p := range parts {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, nil, false
		}
		if v, ok = m[p]; !ok {
			return nil, nil, false
		}
		if m, ok := v.(map[string]any); ok && m["$ref"] != nil {
			to := strings.Split(strings.TrimPrefix(m["$ref"].(string), "#/"), "/")
			return d.at(append(to, parts[i+1:]...)...)
		}
	}
	return v, parts, true
}

// check validates a value against the schema that a JSON pointer's parts name.
func (d *document) check(value any, parts ...string) error {
	_, parts, ok := d.at(parts...)
	if !ok {
		return fmt.Errorf("the document has no %s", strings.Join(parts, " "))
	}
	to := documentURL + "#"
	for _, p := range parts {
		to += "/" + url.PathEscape(pointer(p))
	}
	d.mu.Lock()
	schema := d.schemas[to]
	var err error
	if schema == nil {
		if schema, err = d.compiler.Compile(to); err == nil {
			d.schemas[to] = schema
		}
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// pathOf is the document's path of a request.
func (d *document) pathOf(escaped string) string {
	parts, ok := split(escaped)
	if !ok {
		return ""
	}
	for i := range routes {
		if _, is := routes[i].match(parts); is {
			return routes[i].pattern
		}
	}
	return ""
}

// answer holds an answer against the document, and a request that was served.
func (d *document) answer(t testing.TB, r *http.Request, body []byte, a reply) {
	t.Helper()
	path, method, status := d.pathOf(r.URL.EscapedPath()), strings.ToLower(r.Method), fmt.Sprint(a.status)
	what := r.Method + " " + path + " " + status
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	if r.Method == http.MethodHead {
		return
	}
	if kind == "application/problem+json" {
		if v, err := jsonschema.UnmarshalJSON(strings.NewReader(a.body)); err != nil {
			t.Errorf("%s: %v", what, err)
		} else if err := d.check(v, "components", "schemas", "Problem"); err != nil {
			t.Errorf("%s: %v in %s", what, err, a.body)
		} else if v.(map[string]any)["status"] != json.Number(status) {
			t.Errorf("%s: it says %s", what, a.body)
		}
	}
	if path == "" || a.status == http.StatusMethodNotAllowed || a.status == 401 && kind == "" {
		return // not of an operation
	}
	at := []string{"paths", path, method, "responses", status}
	content, _, ok := d.at(append(at, "content")...)
	if _, _, known := d.at(at...); !known {
		t.Errorf("%s is not in the document: %.300s", what, a.body)
		return
	}
	if !ok {
		if a.body != "" {
			t.Errorf("%s: the document has no body: %.300s", what, a.body)
		}
		return
	}
	if content.(map[string]any)[kind] == nil {
		if kind = "*/*"; content.(map[string]any)[kind] == nil {
			t.Errorf("%s: a body of type %s", what, a.header.Get("Content-Type"))
			return
		}
	}
	if strings.HasSuffix(kind, "json") {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(a.body))
		if err == nil {
			err = d.check(v, append(at, "content", kind, "schema")...)
		}
		if err != nil {
			t.Errorf("%s: %v in %.1000s", what, err, a.body)
		}
	}
	if a.status < 300 && r.Header.Get("Content-Type") == asJSON && len(body) > 0 &&
		path != "/v1/{ns}/{queue}/messages" {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err == nil {
			err = d.check(v, "paths", path, method, "requestBody", "content", asJSON, "schema")
		}
		if err != nil {
			t.Errorf("%s: it was served, and the document refuses its body: %v", what, err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.exercised[what] = true
}

// Every route is in the document, and nothing else is.
func TestDocumentHasTheRoutes(t *testing.T) {
	served := make(map[string]bool)
	for _, rt := range routes {
		served[rt.method+" "+rt.pattern] = true
		v, _, ok := described.at("paths", rt.pattern, strings.ToLower(rt.method))
		if !ok {
			t.Errorf("%s %s is not in the document", rt.method, rt.pattern)
			continue
		}
		o := v.(map[string]any)
		if o["operationId"] != rt.name {
			t.Errorf("%s %s is %v, and not %s", rt.method, rt.pattern, o["operationId"], rt.name)
		}
		if _, open := o["security"]; open != (rt.role == "") {
			t.Errorf("%s: whether it takes a token", rt.name)
		}
		// A settle and an ack are limited where something follows.
		limited, _, _ := described.at("paths", rt.pattern, strings.ToLower(rt.method), "responses", "429")
		if (limited != nil) != (rt.counts != "" || rt.name == "settle" || rt.name == "ack") {
			t.Errorf("%s: whether it is limited", rt.name)
		}
		if want := map[string]string{"publish": "publish", "consume": "consume",
			"both": "both"}[string(rt.role)]; want != "" &&
			o["description"] != "Takes the role "+want+"." {
			t.Errorf("%s: it takes the role %s", rt.name, want)
		}
		var names []string
		list, _ := o["parameters"].([]any)
		for _, p := range list {
			to := strings.Split(strings.TrimPrefix(p.(map[string]any)["$ref"].(string), "#/"), "/")
			v, _, ok := described.at(to...)
			if !ok {
				t.Fatalf("%s: %v", rt.name, p)
			}
			if v.(map[string]any)["in"] == "path" {
				names = append(names, "{"+v.(map[string]any)["name"].(string)+"}")
			}
		}
		for _, part := range rt.parts {
			if part[0] == '{' && !slices.Contains(names, part) {
				t.Errorf("%s: no parameter %s", rt.name, part)
			}
		}
	}
	for path, methods := range described.text["paths"].(map[string]any) {
		for method := range methods.(map[string]any) {
			if !served[strings.ToUpper(method)+" "+path] {
				t.Errorf("%s %s is not served", method, path)
			}
		}
	}
}

// Every example fits its schema, and every schema is one.
func TestDocumentExamples(t *testing.T) {
	n := 0
	for path, methods := range described.text["paths"].(map[string]any) {
		for method, o := range methods.(map[string]any) {
			places := [][]string{{"paths", path, method, "requestBody", "content"}}
			for status := range o.(map[string]any)["responses"].(map[string]any) {
				places = append(places, []string{"paths", path, method, "responses", status, "content"})
			}
			for _, at := range places {
				content, _, _ := described.at(at...)
				kinds, _ := content.(map[string]any)
				for kind, v := range kinds {
					example, has := v.(map[string]any)["example"]
					if !has {
						continue
					}
					n++
					if err := described.check(example, append(at, kind, "schema")...); err != nil {
						t.Errorf("%v: %v", at, err)
					}
				}
			}
		}
	}
	for name := range described.text["components"].(map[string]any)["schemas"].(map[string]any) {
		if err := described.check(nil, "components", "schemas", name); err == nil {
			t.Errorf("the schema %s takes null", name)
		} else if _, is := err.(*jsonschema.ValidationError); !is {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n < 20 {
		t.Errorf("%d examples", n)
	}
}

// The document names every type of problem.
func TestDocumentHasTheProblems(t *testing.T) {
	v, _, _ := described.at("components", "schemas", "Problem", "properties", "type", "enum")
	var names []string
	for _, name := range v.([]any) {
		names = append(names, strings.TrimPrefix(name.(string), problemPrefix))
	}
	for _, k := range []kind{invalidRequest, noToken, invalidToken, forbidden, noRoute, noPool, noMessage, noRecurring,
		wrongMethod, notAcceptable, duplicate, noID, running, waits, cancelled, leaseLost, unconfirmed, notKept,
		tooLarge, wrongType, keyReused, tooMany, internal, busy, stopping, full, unavailable, unknownOutcome} {
		if !slices.Contains(names, k.name) {
			t.Errorf("the document has no problem %s", k.name)
		}
	}
}

// The document itself is served to everybody.
func TestDocumentIsServed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if r := s.send(s.server, "GET", "/v1/openapi.json", ""); r.status != 200 || r.body != string(Document) {
		t.Errorf("%d %.100s", r.status, r.body)
	}
}
