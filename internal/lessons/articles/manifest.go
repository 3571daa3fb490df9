// SPDX-License-Identifier: Apache-2.0

package articles

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v2"
)

// fields returns the fields of the manifests of both sides, such as "Service frontend spec.type: NodePort".
func (e *Exhibit) fields(l library) (article, lab []string, err error) {
	if article, err = fieldsOf(e.Lines); err != nil {
		return nil, nil, err
	}
	for _, s := range e.Lab {
		text, err := l.text(s)
		if err != nil {
			return nil, nil, err
		}
		more, err := fieldsOf(text)
		if err != nil {
			return nil, nil, err
		}
		keep, err := compile(s.Keep)
		if err != nil {
			return nil, nil, err
		}
		for _, f := range more {
			if keep.MatchString(f) {
				lab = append(lab, f)
			}
		}
	}
	return article, lab, nil
}

// document is the line between two objects.
var document = regexp.MustCompile(`(?m)^---$`)

// fieldsOf returns the fields of the objects in a manifest.
func fieldsOf(text string) ([]string, error) {
	var out []string
	for _, part := range document.Split(text, -1) {
		var object yaml.MapSlice
		if err := yaml.Unmarshal([]byte(part), &object); err != nil {
			return nil, err
		}
		if len(object) == 0 {
			continue
		}
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(part), &head); err != nil {
			return nil, err
		}
		flatten(head.Kind+" "+head.Metadata.Name+": ", "", object, func(f string) { out = append(out, f) })
	}
	return out, nil
}

// flatten calls f with the path and the value of each leaf. What is empty is a leaf, too.
func flatten(object, path string, value any, f func(string)) {
	switch v := value.(type) {
	case yaml.MapSlice:
		if len(v) == 0 {
			f(object + path + " = {}")
		}
		for _, one := range v {
			flatten(object, strings.TrimPrefix(path+"."+fmt.Sprint(one.Key), "."), one.Value, f)
		}
	case []any:
		if len(v) == 0 {
			f(object + path + " = []")
		}
		for _, one := range v {
			flatten(object, path+"[]", one, f)
		}
	default:
		f(fmt.Sprintf("%s%s = %v", object, path, v))
	}
}
