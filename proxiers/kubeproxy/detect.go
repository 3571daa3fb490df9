// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"fmt"
	"slices"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// Detection is how kube-proxy tells the node's own pods from other senders, as its flag --detect-local-mode names it
// (KEP-2450).
type Detection string

// The ways of detection.
const (
	// ClusterCIDR takes senders in the pod ranges of all nodes for the node's own. It is the default.
	ClusterCIDR Detection = "ClusterCIDR"
	// NodeCIDR takes those in the pod range of the node.
	NodeCIDR Detection = "NodeCIDR"
	// BridgeInterface takes those that come in by the node's bridge. Pods must be on bridges.
	BridgeInterface Detection = "BridgeInterface"
	// InterfaceNamePrefix takes those that come in by a device of a pod.
	InterfaceNamePrefix Detection = "InterfaceNamePrefix"
	// NoDetection takes nobody for a pod of the node: kube-proxy gets no range.
	NoDetection Detection = "none"
)

// Detections lists all ways.
var Detections = []Detection{ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix, NoDetection}

// arguments returns kube-proxy's flags.
func (d Detection) arguments() []string {
	switch d {
	case NodeCIDR:
		return []string{"--detect-local-mode=NodeCIDR"}
	case BridgeInterface:
		return []string{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=" + lab.BridgeDevice}
	case InterfaceNamePrefix:
		return []string{
			"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=" + lab.RoutedPrefix,
		}
	case NoDetection:
		return []string{"--detect-local-mode=ClusterCIDR"}
	default:
		return []string{"--detect-local-mode=ClusterCIDR", "--cluster-cidr={{.ClusterCIDR}}"}
	}
}

// check returns an error if there is no such way.
func (d Detection) check() error {
	if !slices.Contains(Detections, d) {
		return fmt.Errorf("local detection %q: want one of %v", d, Detections)
	}
	return nil
}

// fits returns an error if pods of the node cannot be told so.
func (d Detection) fits(node spec.Node) error {
	pods := node.Host.PodNetwork()
	switch {
	case d == BridgeInterface && pods != lab.Bridge:
		return &spec.UnusableError{Missing: "pods on a bridge, to detect by interface", Cure: "--pods bridge"}
	case d == InterfaceNamePrefix && pods != lab.Routed:
		return &spec.UnusableError{Missing: "a device for each pod, to detect by its name", Cure: "--pods routed"}
	}
	return nil
}
