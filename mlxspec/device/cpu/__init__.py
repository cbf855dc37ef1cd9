"""Operations for a CPU without Apple's libraries, whose cores share the work of a forward."""
