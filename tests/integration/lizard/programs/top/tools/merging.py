from . import constants
def merge(a, b, k):
    return sorted(a + b, key=lambda pair: (-pair[0], pair[1]))[:min(k, constants.MOST)]
