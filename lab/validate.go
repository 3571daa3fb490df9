package lab

import (
	"errors"
	"fmt"
	"regexp"
)

const (
	clientName = "client"
	routerName = "router"
	switchName = "underlay"
)

var (
	// nodeName is a label of DNS, as Kubernetes asks of most names.
	nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	// podName is such a label, or two with a slash between: a namespace and a name.
	podName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

// Validate says everything that is wrong with the topology, or nil.
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

// taken is the names of all machines in a lab: messages and commands tell machines apart by nothing else.
type taken map[string]bool

func newNames() taken { return taken{clientName: true, routerName: true, switchName: true} }

// addNode adds the names of a node and its pods, and says everything that is wrong with them.
func (t taken) addNode(n NodeSpec) []error {
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	note(t.add("node", n.Name, nodeName.MatchString(n.Name)))
	if most := lastPod - firstPod + 1; len(n.Pods) > most {
		note(fmt.Errorf("%s: %d pods: a node has addresses for %d", n.Name, len(n.Pods), most))
	}
	for _, p := range n.Pods {
		note(t.addPod(p))
	}
	return errs
}

func (t taken) addPod(p PodSpec) error { return t.add("pod", p.Name, podName.MatchString(p.Name)) }

func (t taken) add(what, name string, valid bool) error {
	switch {
	case name == "":
		return fmt.Errorf("%s has no name", what)
	case !valid:
		return fmt.Errorf("%s name %q: want lower case letters, digits and dashes, not at either end", what, name)
	case t[name]:
		return fmt.Errorf("%s name %q: taken already", what, name)
	}
	t[name] = true
	return nil
}
