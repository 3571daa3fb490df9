// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

// operation is one step of a JSON patch (RFC 6902).
type operation struct {
	Op    string  `json:"op"`
	Path  *string `json:"path"`
	From  *string `json:"from"`
	Value any     `json:"value"`
	valid bool    // a value is given, though it may be null
}

func parseOperations(text []byte) ([]operation, error) {
	var raw []map[string]any
	var ops []operation
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("a JSON patch is a list of operations: %w", err)
	}
	if err := json.Unmarshal(text, &ops); err != nil {
		return nil, err
	}
	for i := range ops {
		_, ops[i].valid = raw[i]["value"]
		ops[i].Value = raw[i]["value"] // whose integers are integers
		if err := ops[i].check(); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i+1, err)
		}
	}
	return ops, nil
}

func (o *operation) check() error {
	switch o.Op {
	case "add", "replace", "test":
		if !o.valid {
			return fmt.Errorf("%s wants a value", o.Op)
		}
	case "move", "copy":
		if o.From == nil {
			return fmt.Errorf("%s wants from", o.Op)
		}
	case "remove":
	default:
		return fmt.Errorf("op %q is not one of add, remove, replace, move, copy, test", o.Op)
	}
	if o.Path == nil {
		return fmt.Errorf("%s wants a path", o.Op)
	}
	return nil
}

// apply changes a document, which may be changed in place, and returns it.
func (o *operation) apply(doc any) (any, error) {
	var err error
	switch o.Op {
	case "add":
		doc, err = edit(doc, *o.Path, insert(o.Value))
	case "remove":
		doc, err = edit(doc, *o.Path, remove)
	case "replace":
		doc, err = edit(doc, *o.Path, replace(o.Value))
	case "move":
		doc, err = o.move(doc)
	case "copy":
		var v any
		if v, err = lookUp(doc, *o.From); err == nil {
			doc, err = edit(doc, *o.Path, insert(runtime.DeepCopyJSONValue(v)))
		}
	case "test":
		var v any
		if v, err = lookUp(doc, *o.Path); err == nil && !reflect.DeepEqual(v, o.Value) {
			err = errors.New("the value is another")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.Op, *o.Path, err)
	}
	return doc, nil
}

func (o *operation) move(doc any) (any, error) {
	if strings.HasPrefix(*o.Path, *o.From+"/") {
		return nil, errors.New("a value cannot be moved into itself")
	}
	v, err := lookUp(doc, *o.From)
	if err != nil {
		return nil, err
	}
	if doc, err = edit(doc, *o.From, remove); err != nil {
		return nil, err
	}
	return edit(doc, *o.Path, insert(v))
}

var errAbsent = errors.New("there is no such value")

// pointer splits a JSON pointer (RFC 6901) into its steps.
func pointer(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	if path[0] != '/' {
		return nil, fmt.Errorf("%q does not begin with a slash", path)
	}
	steps := strings.Split(path[1:], "/")
	for i := range steps {
		steps[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(steps[i])
	}
	return steps, nil
}

func lookUp(doc any, path string) (any, error) {
	steps, err := pointer(path)
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		switch in := doc.(type) {
		case map[string]any:
			v, ok := in[step]
			if !ok {
				return nil, errAbsent
			}
			doc = v
		case []any:
			i, err := position(step, len(in)-1)
			if err != nil {
				return nil, err
			}
			doc = in[i]
		default:
			return nil, errAbsent
		}
	}
	return doc, nil
}

// position reads an index of a list, which must not be beyond last.
func position(step string, last int) (int, error) {
	i, err := strconv.Atoi(step)
	if err != nil || i < 0 || i > last || step != strconv.Itoa(i) {
		return 0, errAbsent
	}
	return i, nil
}

// action changes one place of a document: a field of an object, an item of a list or, with a nil container, the whole.
// It returns the container as it is then.
type action func(container any, step string) (any, error)

// edit runs an action at a path.
func edit(doc any, path string, do action) (any, error) {
	steps, err := pointer(path)
	if err != nil {
		return nil, err
	}
	if len(steps) == 0 {
		return do(nil, "")
	}
	return editAt(doc, steps, do)
}

func editAt(doc any, steps []string, do action) (any, error) {
	step := steps[0]
	if len(steps) == 1 {
		return do(doc, step)
	}
	child, err := lookUp(doc, "/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(step))
	if err != nil {
		return nil, err
	}
	if child, err = editAt(child, steps[1:], do); err != nil {
		return nil, err
	}
	return replace(child)(doc, step)
}

func insert(v any) action {
	return func(container any, step string) (any, error) {
		switch in := container.(type) {
		case nil:
			return v, nil
		case map[string]any:
			in[step] = v
			return in, nil
		case []any:
			if step == "-" {
				return append(in, v), nil
			}
			i, err := position(step, len(in))
			if err != nil {
				return nil, err
			}
			return slices.Insert(in, i, v), nil
		}
		return nil, errAbsent
	}
}

func replace(v any) action {
	return func(container any, step string) (any, error) {
		switch in := container.(type) {
		case nil:
			return v, nil
		case map[string]any:
			if _, ok := in[step]; !ok {
				return nil, errAbsent
			}
			in[step] = v
			return in, nil
		case []any:
			i, err := position(step, len(in)-1)
			if err != nil {
				return nil, err
			}
			in[i] = v
			return in, nil
		}
		return nil, errAbsent
	}
}

func remove(container any, step string) (any, error) {
	switch in := container.(type) {
	case nil:
		return nil, errors.New("the whole document cannot be removed")
	case map[string]any:
		if _, ok := in[step]; !ok {
			return nil, errAbsent
		}
		delete(in, step)
		return in, nil
	case []any:
		i, err := position(step, len(in)-1)
		if err != nil {
			return nil, err
		}
		return slices.Delete(in, i, i+1), nil
	}
	return nil, errAbsent
}
