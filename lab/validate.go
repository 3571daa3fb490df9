// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const (
	clientName = "client"
	routerName = "router"
	switchName = "underlay"
)

var (
	// nodeName is a DNS label, as Kubernetes requires of most names.
	nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	// podName is a subdomain, perhaps after a namespace and a slash. To count its length here would take 4 ms to
	// compile.
	podName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
)

// Validate returns an error that lists everything wrong with the topology, or nil.
func (t Topology) Validate() error {
	errs := []error{
		stacks.check("IP stack", t.Stack),
		podNetworks.check("pod network", t.PodNetwork),
		overlays.check("overlay", t.Overlay),
	}
	if len(t.Nodes) == 0 {
		errs = append(errs, errors.New("no nodes: a lab has at least one"))
	}
	if len(t.Nodes) > maxNodes {
		errs = append(errs, fmt.Errorf("%d nodes: the LAN has addresses for %d", len(t.Nodes), maxNodes))
	}
	names := newNames()
	for i, n := range t.Nodes {
		for _, err := range names.addNode(n) {
			errs = append(errs, fmt.Errorf("node %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

// taken is the set of names of all machines. They are unique because messages and commands use nothing else.
type taken map[string]bool

func newNames() taken { return taken{clientName: true, routerName: true, switchName: true} }

// addNode adds the names of a node and its pods, and returns an error for each that is invalid or taken.
func (t taken) addNode(n NodeSpec) []error {
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s%w", what, err))
		}
	}
	note(prefix("node ", n.Name), t.add(n.Name, nodeName))
	if most := lastPod - firstPod + 1; len(n.Pods) > most {
		errs = append(errs, fmt.Errorf("%s: %d pods: a node has addresses for %d", n.Name, len(n.Pods), most))
	}
	for i, p := range n.Pods {
		if p.Name == "" {
			note(fmt.Sprintf("pod %d: ", i+1), errNoName)
			continue
		}
		note(prefix("pod ", p.Name), t.addPod(p))
	}
	return errs
}

// prefix returns the beginning of a message about the named thing, or "" if it has no name.
func prefix(kind, name string) string {
	if name == "" {
		return ""
	}
	return kind + name + ": "
}

// longestName is the length of the longest subdomain of DNS (RFC 1123, as Kubernetes reads it).
const longestName = 253

func (t taken) addPod(p PodSpec) error {
	if name := p.Name[strings.Index(p.Name, "/")+1:]; len(name) > longestName {
		return errBadName
	}
	return t.add(p.Name, podName)
}

var (
	errNoName  = errors.New("no name")
	errBadName = errors.New("bad name: want lower case letters, digits and dashes")
)

func (t taken) add(name string, pattern *regexp.Regexp) error {
	switch {
	case name == "":
		return errNoName
	case !pattern.MatchString(name):
		return errBadName
	case t[name]:
		return errors.New("name is taken")
	}
	t[name] = true
	return nil
}
