// SPDX-License-Identifier: Apache-2.0

package given

import (
	corev1 "k8s.io/api/core/v1"
)

// SCTP makes the pod accept SCTP associations on a port.
func SCTP(port int32) PodOption { return serves("", port, corev1.ProtocolSCTP) }

// SCTPPort adds an SCTP port and the pods' port that serves it.
func SCTPPort(port int32, target int) ServiceOption {
	return ServicePort("", corev1.ProtocolSCTP, port, target)
}
