// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v2"

	"github.com/viplab/viplab/lab/cluster/images"
)

// File is a lab.yaml: a lab in a file. Every field may be missing. Those of one value have the meaning and the default
// of the flag of "viplab up" with the same name.
type File struct {
	Name      string   `yaml:"name"`
	Nodes     string   `yaml:"nodes"`
	IP        string   `yaml:"ip"`
	Overlay   string   `yaml:"overlay"`
	Pods      string   `yaml:"pods"`
	Proxier   string   `yaml:"proxier"`
	Exec      string   `yaml:"exec"`
	Enforcer  string   `yaml:"enforcer"`
	APIPort   string   `yaml:"apiPort"`
	Manifests []string `yaml:"manifests"` // paths relative to the file, or - for the standard input
	// Images are those that pods may name beside the built-in ones. Paths are relative to the file.
	Images map[string]images.Source `yaml:"images"`
}

// Flags returns the values that the file gives, by the name of the flag.
func (f *File) Flags() map[string]string {
	flags := map[string]string{
		"nodes": f.Nodes, "ip": f.IP, "overlay": f.Overlay, "pods": f.Pods, "proxier": f.Proxier, "exec": f.Exec,
		"enforcer": f.Enforcer, "api-port": f.APIPort,
	}
	for name, value := range flags {
		if value == "" {
			delete(flags, name)
		}
	}
	return flags
}

// IsFile reports whether a text is a lab.yaml: its first document has no kind, as every object of Kubernetes has.
func IsFile(text []byte) bool {
	var first struct {
		Kind *string `yaml:"kind"`
	}
	err := yaml.Unmarshal(text, &first)
	return err == nil && first.Kind == nil
}

// inGo is what the decoder says of the Go type that it decodes into.
var inGo = regexp.MustCompile(` in (type|struct) \S+$`)

// ReadFile decodes a lab.yaml. It is strict about unknown and duplicate fields and wrong types.
func ReadFile(source string, text []byte) (*File, error) {
	var f File
	err := yaml.UnmarshalStrict(text, &f)
	if wrong := (*yaml.TypeError)(nil); errors.As(err, &wrong) {
		var errs []error
		for _, e := range wrong.Errors {
			errs = append(errs, fmt.Errorf("%s: %s", source, inGo.ReplaceAllString(e, "")))
		}
		return nil, fmt.Errorf("%w\n(a lab.yaml may have: name, nodes, ip, overlay, pods, proxier, exec, enforcer, apiPort, "+
			"manifests, images; see docs/labs.md)", errors.Join(errs...))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s", source, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	return &f, nil
}
