// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"

	"github.com/viplab/viplab/lab/cluster/store"
)

// The reasons of Events are those of a kubelet (pkg/kubelet/events/event.go).

// warn posts a warning about the pod.
func (p *Pod) warn(reason, message string) {
	p.record(store.Notice{Warning: true, Reason: reason, Message: message})
}

func (p *Pod) record(n store.Notice) {
	n.About, n.Component, n.Host = p.object, "kubelet", p.object.Spec.NodeName
	p.kubelet.config.Store.Record(n)
}

// tell posts an Event about the container.
func (u *unit) tell(reason, format string, args ...any) {
	u.pod.record(store.Notice{Part: u.part(), Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// warn posts a warning about the container.
func (u *unit) warn(reason, format string, args ...any) {
	u.pod.record(store.Notice{Part: u.part(), Warning: true, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (u *unit) part() string {
	list := "containers"
	if u.role == initContainer {
		list = "initContainers"
	}
	return fmt.Sprintf("spec.%s{%s}", list, u.spec.Name)
}
