// SPDX-License-Identifier: Apache-2.0

// Package manifest reads and writes the objects of a lab as people do: in YAML documents and JSON.
package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/viplab/viplab/lab/cluster/store"
)

// DecodeError is one mistake in a manifest.
type DecodeError struct {
	Source   string // the file
	Document int    // from 1
	Line     int    // on which the document begins
	Object   string // "Service \"shop/web\"", or empty if that is not known
	Detail   string
}

func (e *DecodeError) Error() string {
	parts := []string{fmt.Sprintf("%s: document %d (line %d)", e.Source, e.Document, e.Line)}
	for _, s := range []string{e.Object, e.Detail} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

// Decode reads the objects of a manifest: YAML documents or JSON values, lists included. It is strict about unknown and
// duplicate fields and wrong types. The error joins a *DecodeError for each mistake. Source names the manifest.
func Decode(source string, data []byte) ([]store.Object, error) {
	objects, unknown, err := DecodeKnown(source, data)
	if len(unknown) > 0 {
		for _, u := range unknown {
			err = errors.Join(err, u)
		}
		return nil, err
	}
	return objects, err
}

// DecodeKnown is Decode for manifests that hold other kinds, too: it skips objects whose kind or API version the store
// does not know, and returns a *DecodeError for each of them beside the objects that it knows.
func DecodeKnown(source string, data []byte) (objects []store.Object, skipped []*DecodeError, err error) {
	documents, err := splitDocuments(data)
	d := decoder{source: source}
	for _, doc := range documents {
		d.decode(doc)
	}
	if bad := (*DecodeError)(nil); errors.As(err, &bad) {
		bad.Source = source
		d.errs = append(d.errs, bad)
	}
	if len(d.errs) > 0 {
		return nil, d.unknown, errors.Join(d.errs...)
	}
	return d.objects, d.unknown, nil
}

type decoder struct {
	source  string
	doc     document
	objects []store.Object
	unknown []*DecodeError
	errs    []error
}

// mistake returns an error about an object of the present document.
func (d *decoder) mistake(object, format string, args ...any) *DecodeError {
	return &DecodeError{
		Source: d.source, Document: d.doc.number, Line: d.doc.line,
		Object: object, Detail: fmt.Sprintf(format, args...),
	}
}

func (d *decoder) fail(object, format string, args ...any) {
	d.errs = append(d.errs, d.mistake(object, format, args...))
}

func (d *decoder) decode(doc document) {
	d.doc = doc
	v, duplicates, err := doc.value()
	if err != nil {
		d.fail("", "%v", err)
		return
	}
	object, ok := v.(map[string]any)
	if !ok {
		d.fail("", "wants an object with apiVersion and kind, got %s", describe(v))
		return
	}
	for _, twice := range duplicates {
		d.fail(nameOf(object), "%s", twice)
	}
	d.object("", object)
}

// nameOf returns how errors call an object that may be anything.
func nameOf(object map[string]any) string {
	kind, _ := object["kind"].(string)
	meta, _ := object["metadata"].(map[string]any)
	namespace, _ := meta["namespace"].(string)
	name, _ := meta["name"].(string)
	switch {
	case kind == "":
		return ""
	case name == "":
		return kind
	default:
		return fmt.Sprintf("%s %q", kind, store.Key{Namespace: namespace, Name: name})
	}
}

// object decodes an object or the items of a list; where says which item of a list it is.
func (d *decoder) object(where string, object map[string]any) {
	if isList(object) {
		d.list(where, object)
		return
	}
	name := strings.TrimPrefix(where+" "+nameOf(object), " ")
	if object["kind"] == nil || object["apiVersion"] == nil {
		d.fail(name, "wants apiVersion and kind")
		return
	}
	r, detail := resourceFor(object)
	if r == nil {
		d.unknown = append(d.unknown, d.mistake(name, "%s", detail))
		return
	}
	obj := r.New()
	text, err := json.Marshal(object)
	if err != nil {
		d.fail(name, "%v", err)
		return
	}
	if mistakes := unmarshalStrict(text, obj); len(mistakes) > 0 {
		for _, m := range mistakes {
			d.fail(name, "%s", m)
		}
		return
	}
	d.objects = append(d.objects, obj)
}

// describe returns a description of a value of the wrong type.
func describe(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the string %q", v)
	default:
		return fmt.Sprintf("the value %v", v)
	}
}

func isList(object map[string]any) bool {
	kind, _ := object["kind"].(string)
	_, items := object["items"]
	return items && strings.HasSuffix(kind, "List")
}

func (d *decoder) list(where string, object map[string]any) {
	items, ok := object["items"].([]any)
	if !ok {
		d.fail(where, "items: wants a list, got %s", describe(object["items"]))
		return
	}
	kind := strings.TrimSuffix(object["kind"].(string), "List")
	for i, item := range items {
		at := fmt.Sprintf("%sitem %d", where, i+1)
		o, ok := item.(map[string]any)
		if !ok {
			d.fail(at, "wants an object, got %s", describe(item))
			continue
		}
		if kind != "" && o["kind"] == nil { // the items of a ServiceList may omit their kind
			o["kind"], o["apiVersion"] = kind, object["apiVersion"]
		}
		d.object(at, o)
	}
}

// resourceFor returns the resource of an object, or an error if there is none.
func resourceFor(object map[string]any) (*store.Resource, string) {
	kind, _ := object["kind"].(string)
	version, _ := object["apiVersion"].(string)
	var known []string
	for _, r := range store.Resources() {
		if string(r.Kind) == kind && r.APIVersion() == version {
			return r, ""
		}
		if string(r.Kind) == kind {
			return nil, fmt.Sprintf("apiVersion %q is not known for this kind (allowed: %s)", version, r.APIVersion())
		}
		known = append(known, fmt.Sprintf("%s (%s)", r.Kind, r.APIVersion()))
	}
	return nil, fmt.Sprintf("kind %s of %s is not known (known: %s)", kind, version, strings.Join(known, ", "))
}
